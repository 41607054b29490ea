"""How long Corrupted-CIFAR10 takes to make, and how far its corruptions are from other libraries' on real pictures.

    python benchmarks/corruptions.py [--device cuda] [--threads 2] [--rounds 3]

Reads CIFAR-10 from BISE_DATA. Writes results/corruptions.json: seconds for 5,000 pictures by corruption, at severity
5, the median over rounds; seconds for whole sets at one ρ, from the source's files and from the cache; and the same
steps by Pillow, SciPy and OpenCV (where that is installed), one picture at a time: their seconds, and the largest
difference in grey levels. With --device cuda only the corruptions are timed, into results/corruptions_cuda.json.
"""

from __future__ import annotations

import argparse
import io
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from bise.base.files import read_json, write_json
from bise.data.core.contract import stored
from bise.data.sets.cifar10 import cifar10
from bise.data.sets.corrupted_cifar10 import LISTS, corrupted_cifar10
from bise.data.sets.corruptions import CORRUPTIONS, corrupt
from bise.data.sets.corruptions.blur import defocus_blur, gaussian_blur
from bise.data.sets.corruptions.digital import affine, sampled
from bise.data.sets.corruptions.filters import along_both, gaussian_matrix, grid
from bise.data.sets.corruptions.water import water
from bise.data.sets.draws import Draws
from bise.studies.origin import machine

ROOT = Path(__file__).parent.parent
MANY, FEW = 5000, 500


def seconds(work: Callable[[], Any], rounds: int, device: str) -> float:
    """The median over rounds."""
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        work()
        if device == "cuda":
            torch.cuda.synchronize()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def by_corruption(x: Tensor, rounds: int, device: str) -> dict[str, float]:
    corrupt(x[:100], "snow")  # what the first call alone costs
    return {name: seconds(lambda name=name: corrupt(x, name), rounds, device) for name in CORRUPTIONS}


def whole_sets() -> list[dict[str, Any]]:
    """Train, val and test at ρ = 0.95, into an empty cache and out of it."""
    out = []
    for protocol in LISTS:
        with tempfile.TemporaryDirectory() as folder:
            os.environ["BISE_CACHE"] = folder
            entry: dict[str, Any] = {"protocol": protocol, "rho": 0.95}
            for key in ("made_s", "cached_s"):
                pictures = 0
                start = time.perf_counter()
                for split in ("train", "val", "test") if protocol == "dfa" else ("train", "test"):
                    data = corrupted_cifar10(split, rho=0.95, protocol=protocol)
                    pictures += len(stored(data)[0].tensors[0])
                entry |= {key: time.perf_counter() - start, "pictures": pictures}
            out.append(entry)
            print(entry)
    return out


def others(x: Tensor) -> list[dict[str, Any]]:
    """The steps that other libraries have as well, on the same pictures and random numbers, one picture at a time."""
    from PIL import Image
    from scipy import ndimage

    draws = Draws(seed=0, index=torch.arange(len(x)))
    f = x.float() / 255
    pictures, arrays = x.permute(0, 2, 3, 1).numpy(), f.permute(0, 2, 3, 1).numpy()

    def jpeg(picture: Any) -> Any:
        file = io.BytesIO()
        Image.fromarray(picture).save(file, "JPEG", quality=40)
        return np.array(Image.open(file))

    def pixels(picture: Any) -> Any:
        box = Image.Resampling.BOX
        return np.array(Image.fromarray(picture).resize((20, 20), box).resize((32, 32), box))

    def blurred(array: Any) -> Any:
        return ndimage.gaussian_filter(array.astype(np.float64), (1, 1, 0), mode="nearest", truncate=4) * 255

    jobs = [
        ("jpeg_compression", "Pillow", lambda: [jpeg(p) for p in pictures], lambda: corrupt(x, "jpeg_compression")),
        ("pixelate", "Pillow", lambda: [pixels(p) for p in pictures], lambda: corrupt(x, "pixelate")),
        ("gaussian_blur", "SciPy", lambda: [blurred(a) for a in arrays], lambda: gaussian_blur(f, 5, draws) * 255),
    ]
    try:
        jobs += opencv(f, arrays, draws)
    except ModuleNotFoundError:
        print("OpenCV isn't installed: its steps are left out")
    out = []
    for name, library, theirs, ours in jobs:
        ours()  # what the first call alone costs
        start = time.perf_counter()
        reference = np.stack(theirs()).astype(np.float64)
        middle = time.perf_counter()
        mine = ours().permute(0, 2, 3, 1).double().clamp(0, 255).numpy()
        end = time.perf_counter()
        entry = {
            "step": name,
            "library": library,
            "pictures": len(x),
            "largest_difference": float(np.abs(mine - reference).max()),
        }
        out.append(entry | {"theirs_s": middle - start, "ours_s": end - middle})
        print(out[-1])
    return out


def opencv(f: Tensor, arrays: Any, draws: Draws) -> list[tuple[str, str, Callable[[], Any], Callable[[], Tensor]]]:
    import cv2

    cv2.setNumThreads(torch.get_num_threads())
    away = np.arange(-8, 9)
    disk = (away[:, None] ** 2 + away**2 <= 1.5**2).astype(np.float32)
    disk = cv2.GaussianBlur(disk / disk.sum(), ksize=(3, 3), sigmaX=0.1)
    moves = draws.between(0, -0.96, 0.96, 3, 2)
    corners = np.array([[26, 26], [26, 6], [6, 6]], np.float32)

    def turned(array: Any, move: Any) -> Any:
        matrix = cv2.getAffineTransform(corners, corners + move)
        return cv2.warpAffine(array, matrix, (32, 32), borderMode=cv2.BORDER_REFLECT_101) * 255

    def ours_turned() -> Tensor:
        rows, columns = grid(f)
        places = torch.stack([columns.expand(32, 32), rows.expand(32, 32), torch.ones(32, 32).long()]).flatten(1)
        source = (affine(32, moves) @ places.double()).view(-1, 2, 32, 32).float()
        return sampled(f, source[:, 1], source[:, 0], edge_twice=False) * 255

    liquid = along_both(0.65 + 0.3 * draws.normal(0, 32, 32), gaussian_matrix(32, 1.0))
    liquid = torch.where(liquid < 0.69, 0.0, liquid)

    def wet(array: Any, layer: Any) -> Any:
        layer = (np.floor(layer * np.float32(255)) % 256).astype(np.uint8)
        dist = cv2.distanceTransform(255 - cv2.Canny(layer, 50, 150), cv2.DIST_L2, 5)
        dist = cv2.equalizeHist(cv2.blur(np.minimum(dist, 20), (3, 3)).astype(np.uint8))
        dist = cv2.filter2D(dist, cv2.CV_8U, np.array([[-2, -1, 0], [-1, 1, 1], [0, 1, 2]]))
        shine = layer * cv2.blur(dist, (3, 3)).astype(np.float32)
        light = 0.5 * shine[..., None] / max(shine.max(), 1) * np.array([175, 238, 238]) / 255
        return np.clip(array + light, 0, 1) * 255

    pairs, layers = list(zip(arrays, moves.numpy(), strict=True)), list(zip(arrays, liquid.numpy(), strict=True))
    soft, moved, drops = "defocus_blur", "elastic_transform, its affine map", "spatter, water at severity 3"
    return [
        (
            soft,
            "OpenCV",
            lambda: [cv2.filter2D(a, -1, disk) * 255 for a in arrays],
            lambda: defocus_blur(f, 5, draws) * 255,
        ),
        (moved, "OpenCV", lambda: [turned(*pair) for pair in pairs], ours_turned),
        (drops, "OpenCV", lambda: [wet(*pair) for pair in layers], lambda: water(f, liquid, 0.5) * 255),
    ]


def page() -> str:
    """The tables of docs/corrupted_cifar10.md."""
    result = read_json(ROOT / "results" / "corruptions.json")
    seen = result["machine"]
    lines = [f"{seen['threads']} of {seen['cores']} cores, load average at the start {result['load_average']:.1f}:", ""]
    lines += ["| list | pictures | made, s | from the cache, s |", "|---|---|---|---|"]
    for e in result["sets"]:
        lines.append(f"| {e['protocol']} | {e['pictures']:,} | {e['made_s']:.1f} | {e['cached_s']:.2f} |")
    lines += ["", "| corruption | s for 5,000 pictures |", "|---|---|"]
    lines += [f"| {name} | {value:.2f} |" for name, value in result["seconds_for_5000"].items()]
    lines += ["", f"On {FEW} real pictures, against libraries that work on one picture at a time:", ""]
    lines += ["| step | library | largest difference, levels of 255 | theirs, s | ours, s |", "|---|---|---|---|---|"]
    for e in result["others"]:
        level = "0, bit for bit" if e["largest_difference"] == 0 else f"{e['largest_difference']:.1g}"
        lines.append(f"| {e['step']} | {e['library']} | {level} | {e['theirs_s']:.3f} | {e['ours_s']:.3f} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    x = cifar10("test").images()[:MANY]
    result: dict[str, Any] = {"machine": machine(), "severity": 5, "rounds": args.rounds, "device": args.device}
    result["load_average"] = os.getloadavg()[0]
    result["seconds_for_5000"] = by_corruption(x.to(args.device), args.rounds, args.device)
    print(result["seconds_for_5000"])
    if args.device == "cpu":
        result |= {"sets": whole_sets(), "others": others(x[:FEW])}
    write_json(ROOT / f"results/corruptions{'' if args.device == 'cpu' else '_' + args.device}.json", result)


if __name__ == "__main__":
    main()
