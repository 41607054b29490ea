"""Each corruption against SciPy, Pillow, the standard library or loops over pixels, with the same random numbers."""

from __future__ import annotations

import colorsys
import io
import math

import numpy as np
import pytest
import torch
from PIL import Image
from scipy import ndimage, stats

from bise import BadInput
from bise.data.sets.corruptions import CORRUPTIONS, corrupt, noise, water, weather
from bise.data.sets.corruptions.digital import affine
from bise.data.sets.draws import Draws

SEVERITIES = range(1, 6)
LEVEL = 1 / 255


@pytest.fixture(scope="module")
def x():
    """12 smooth pictures with some sharp edges, some grey and some black, as bytes."""
    generator = torch.Generator().manual_seed(3)
    coarse = torch.rand(12, 3, 6, 6, generator=generator)
    smooth = torch.nn.functional.interpolate(coarse, size=32, mode="bicubic").clamp(0, 1)
    smooth[:, :, 10:20, 5:9] = torch.rand(12, 3, 1, 1, generator=generator)
    smooth[:4, :, 25:, :8] = 0
    smooth[4:8, :, 25:, :8] = torch.rand(4, 1, 1, 1, generator=generator)
    return (smooth * 255).to(torch.uint8)


def draws(n=12, seed=5):
    return Draws(seed=seed, index=torch.arange(n))


def made(x, name, severity):
    """The corruption as floats [n, 32, 32, 3] in levels of grey, before they are cut off to bytes."""
    out = CORRUPTIONS[name](x.float() / 255, severity, draws(len(x)))
    return out.permute(0, 2, 3, 1).double().numpy() * 255


def floats(x):
    return x.permute(0, 2, 3, 1).double().numpy() / 255


def assert_close(ours, theirs, levels=0.01):
    """Within hundredths of a grey level, for pictures in levels and in [0, 1]."""
    assert np.abs(ours - theirs * 255).max() < levels


def test_random_numbers_are_splitmix64():
    def reference(state, count):
        out, full = [], (1 << 64) - 1
        for _ in range(count):
            state = (state + 0x9E3779B97F4A7C15) & full
            z = state
            z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & full
            z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & full
            out.append(z ^ (z >> 31))
        return out

    assert reference(1234567, 2) == [6457827717110365317, 3203168211198807973]  # published test values
    golden, full = 0x9E3779B97F4A7C15, (1 << 64) - 1
    key = (7 * 0x10001 + 3) & full
    start = reference((reference((key * golden - golden) & full, 1)[0] + 9 * golden - golden) & full, 1)[0]
    start = reference((start - golden) & full, 1)[0]
    ours = Draws(seed=7, index=torch.tensor([9])).hashed(3, 2, 2)[0].flatten().tolist()
    assert [v % (1 << 64) for v in ours] == reference(start, 4)


def test_random_numbers_are_uniform_and_normal():
    many = draws(200)
    u, z = many.uniform(0, 500).flatten(), many.normal(1, 500).flatten()
    assert stats.kstest(u.numpy(), "uniform").pvalue > 1e-3
    assert stats.kstest(z.numpy(), "norm").pvalue > 1e-3
    assert float(u.min()) > 0 < 1 - float(u.max())
    # neighbours in sample, place, stream and seed have nothing to do with each other
    rows = [many.normal(0, 500), many.normal(1, 500), draws(200, seed=6).normal(0, 500)]
    pairs = [(rows[0], rows[1]), (rows[0], rows[2]), (rows[0][1:], rows[0][:-1]), (rows[0][:, 1:], rows[0][:, :-1])]
    for a, b in pairs:
        assert abs(np.corrcoef(a.flatten(), b.flatten())[0, 1]) < 0.015


@pytest.mark.parametrize("name", CORRUPTIONS)
def test_a_picture_depends_on_its_own_number_only(x, name):
    whole = corrupt(x, name, seed=4, index=torch.arange(100, 112))
    for part in ([3], [11, 0, 5, 6, 7, 1, 2]):
        assert torch.equal(corrupt(x[part], name, seed=4, index=torch.tensor(part) + 100), whole[part])
    again = corrupt(x, name, seed=5, index=torch.arange(100, 112))
    still = {"brightness", "contrast", "saturate", "pixelate", "jpeg_compression", "original"}
    still |= {"gaussian_blur", "defocus_blur", "zoom_blur"}
    assert torch.equal(again, whole) == (name in still)


@pytest.mark.parametrize("name", CORRUPTIONS)
@pytest.mark.parametrize("severity", SEVERITIES)
def test_every_severity_gives_bytes_and_leaves_its_input(x, name, severity):
    before = x.clone()
    out = corrupt(x, name, severity=severity)
    assert out.dtype == torch.uint8
    assert out.shape == x.shape
    assert torch.equal(x, before)
    assert torch.equal(out, x) == (name == "original")


def test_extreme_pictures_stay_finite():
    flat = torch.tensor([0, 255], dtype=torch.uint8).view(2, 1, 1, 1).expand(2, 3, 32, 32).contiguous()
    for name in CORRUPTIONS:
        for severity in SEVERITIES:
            assert CORRUPTIONS[name](flat.float() / 255, severity, draws(2)).isfinite().all(), (name, severity)


@pytest.mark.parametrize("name", CORRUPTIONS)
def test_nothing_is_made_on_another_device(name):
    # tensors of the meta device refuse to meet those of the CPU, as a GPU's do
    out = CORRUPTIONS[name](
        torch.empty(4, 3, 32, 32, device="meta"), 5, Draws(seed=0, index=torch.arange(4, device="meta"))
    )
    assert out.device.type == "meta"
    assert out.shape == (4, 3, 32, 32)


def test_what_cant_be_corrupted_is_named(x):
    for message, call in {
        "corruption 'rain' is unknown": lambda: corrupt(x, "rain"),
        "severity=6": lambda: corrupt(x, "fog", severity=6),
        "shape \\(12, 3, 16, 16\\)": lambda: corrupt(x[..., ::2, ::2], "fog"),
        "index has shape \\(3,\\)": lambda: corrupt(x, "fog", index=torch.arange(3)),
    }.items():
        with pytest.raises(BadInput, match=message):
            call()


@pytest.mark.parametrize("severity", SEVERITIES)
class TestAgainstAnotherImplementation:
    def test_gaussian_blur(self, x, severity):
        sigma = [0.4, 0.6, 0.7, 0.8, 1][severity - 1]
        theirs = ndimage.gaussian_filter(floats(x), (0, sigma, sigma, 0), mode="nearest", truncate=4)
        assert_close(made(x, "gaussian_blur", severity), theirs)

    def test_defocus_blur(self, x, severity):
        radius, softness = [(0.3, 0.4), (0.4, 0.5), (0.5, 0.6), (1, 0.2), (1.5, 0.1)][severity - 1]
        disk = np.hypot(*np.mgrid[-8:9, -8:9]) <= radius
        taps = stats.norm.pdf([-1, 0, 1], scale=softness)
        kernel = ndimage.correlate(disk / disk.sum(), np.outer(taps, taps) / taps.sum() ** 2, mode="constant")
        theirs = ndimage.correlate(floats(x), kernel[None, :, :, None], mode="mirror")
        assert_close(made(x, "defocus_blur", severity), theirs)

    def test_zoom_blur(self, x, severity):
        pictures = floats(x)
        factors = np.arange(1, [1.06, 1.11, 1.16, 1.21, 1.26][severity - 1], 0.01)
        total = pictures.copy()
        for factor in factors:
            total += zoomed(pictures, factor)
        assert_close(made(x, "zoom_blur", severity), total / (len(factors) + 1))

    def test_motion_blur(self, x, severity):
        radius, sigma = [(6, 1), (6, 1.5), (6, 2), (8, 2), (9, 2.5)][severity - 1]
        angle = draws().between(0, -45, 45)
        theirs = [streak(p, radius, sigma, float(a)) for p, a in zip(floats(x), angle, strict=True)]
        assert_close(made(x, "motion_blur", severity), np.round(np.stack(theirs) * 255) / 255, 1.01)
        unrounded = made(x, "motion_blur", severity) - np.stack(theirs) * 255
        assert np.abs(unrounded).max() < 0.51

    def test_glass_blur(self, x, severity):
        sigma, rounds = [(0.05, 1), (0.25, 1), (0.4, 1), (0.25, 2), (0.4, 2)][severity - 1]
        theirs = []
        for i, picture in enumerate(floats(x)):
            soft = ndimage.gaussian_filter(picture, (sigma, sigma, 0), mode="nearest", truncate=4)
            byte = np.uint8(soft * 255 + 1e-3)
            for turn in range(rounds):
                shift = (draws().uniform(turn, 2, 32, 32)[i] < 0.5).numpy()
                for h in range(31, 1, -1):
                    for w in range(31, 1, -1):
                        there = byte[h - shift[0, h, w], w - shift[1, h, w]]
                        byte[h, w], there[:] = there, byte[h, w]  # two views: the second assignment changes nothing
            theirs.append(ndimage.gaussian_filter(byte / 255, (sigma, sigma, 0), mode="nearest", truncate=4))
        assert_close(made(x, "glass_blur", severity), np.stack(theirs))

    def test_brightness_and_saturation(self, x, severity):
        scale, shift = [(0.3, 0), (0.1, 0), (1.5, 0), (2, 0.1), (2.5, 0.2)][severity - 1]
        more = [0.05, 0.1, 0.15, 0.2, 0.3][severity - 1]
        hsv = [colorsys.rgb_to_hsv(*pixel) for pixel in floats(x).reshape(-1, 3).tolist()]
        light = [colorsys.hsv_to_rgb(h, s, min(v + more, 1)) for h, s, v in hsv]
        vivid = [colorsys.hsv_to_rgb(h, min(s * scale + shift, 1), v) for h, s, v in hsv]
        assert_close(made(x, "brightness", severity), np.array(light).reshape(12, 32, 32, 3))
        assert_close(made(x, "saturate", severity), np.array(vivid).reshape(12, 32, 32, 3))

    def test_contrast(self, x, severity):
        mean = floats(x).mean((1, 2), keepdims=True)
        theirs = mean + (floats(x) - mean) * [0.75, 0.5, 0.4, 0.3, 0.15][severity - 1]
        assert_close(made(x, "contrast", severity), theirs)

    def test_pixelate_and_jpeg_are_pillows_bit_for_bit(self, x, severity):
        small = int(32 * [0.95, 0.9, 0.85, 0.75, 0.65][severity - 1])
        quality = [80, 65, 58, 50, 40][severity - 1]
        for ours, coarse, blocky in zip(
            x, corrupt(x, "pixelate", severity=severity), corrupt(x, "jpeg_compression", severity=severity), strict=True
        ):
            picture = Image.fromarray(ours.permute(1, 2, 0).numpy())
            box = Image.Resampling.BOX
            assert np.array_equal(coarse.permute(1, 2, 0), picture.resize((small, small), box).resize((32, 32), box))
            file = io.BytesIO()
            picture.save(file, "JPEG", quality=quality)
            assert np.array_equal(blocky.permute(1, 2, 0), Image.open(file))

    def test_elastic_transform(self, x, severity):
        alpha, sigma, reach = [
            (0, 0, 0.08), (0.05, 0.2, 0.07), (0.08, 0.06, 0.06), (0.1, 0.04, 0.05), (0.1, 0.03, 0.03)
        ][severity - 1]  # fmt: skip
        moves = draws().between(0, -32 * reach, 32 * reach, 3, 2).double().numpy()
        push = draws().between(1, -1, 1, 2, 32, 32).double().numpy()
        places = np.stack([*np.mgrid[:32, :32][::-1], np.ones((32, 32))])
        theirs = []
        for picture, move, dydx in zip(floats(x), moves, push, strict=True):
            before = np.array([[26, 26], [26, 6], [6, 6]])
            matrix = np.linalg.lstsq(np.c_[before + move, np.ones(3)], before, rcond=None)[0].T
            columns, rows = np.einsum("ij,jhw->ihw", matrix, places)
            turned = [
                ndimage.map_coordinates(c, [rows, columns], order=1, mode="mirror") for c in picture.T.swapaxes(1, 2)
            ]
            dy, dx = (ndimage.gaussian_filter(d, 32 * sigma, mode="reflect", truncate=3) * 32 * alpha for d in dydx)
            there = [places[1] + dy, places[0] + dx]
            theirs.append(np.stack([ndimage.map_coordinates(c, there, order=1, mode="reflect") for c in turned], -1))
        assert_close(made(x, "elastic_transform", severity), np.stack(theirs), 0.05)

    def test_snow(self, x, severity):
        mean, spread, zoom, threshold, radius, sigma, keep = [
            (0.1, 0.2, 1, 0.6, 8, 3, 0.95), (0.1, 0.2, 1, 0.5, 10, 4, 0.9), (0.15, 0.3, 1.75, 0.55, 10, 4, 0.9),
            (0.25, 0.3, 2.25, 0.6, 12, 6, 0.85), (0.3, 0.3, 1.25, 0.65, 14, 12, 0.8),
        ][severity - 1]  # fmt: skip
        flakes = zoomed((mean + spread * draws().normal(0, 1, 32, 32)[:, 0].double().numpy())[..., None], zoom)
        flakes = np.floor(np.clip(np.where(flakes < threshold, 0, flakes), 0, 1) * 255)
        angle = draws().between(1, -135, -45)
        blown = np.stack([streak(f, radius, sigma, float(a)) for f, a in zip(flakes, angle, strict=True)])
        blown = np.round(blown) / 255
        pictures = floats(x)
        grey = (pictures @ [0.299, 0.587, 0.114])[..., None]
        pale = keep * pictures + (1 - keep) * np.maximum(pictures, grey * 1.5 + 0.5)
        off = np.abs(made(x, "snow", severity) - (pale + blown + np.rot90(blown, 2, (1, 2))) * 255)
        # float32 and float64 may fall on two sides of a rounding
        assert off.max() < 2.02
        assert (off < 0.02).mean() > 0.998

    def test_fog(self, x, severity):
        thickness, decay = [(0.2, 3), (0.5, 3), (0.75, 2.5), (1, 2), (1.5, 1.75)][severity - 1]
        theirs = []
        for i, picture in enumerate(floats(x)):
            cloud = diamond_square(decay, i)
            theirs.append((picture + thickness * cloud[..., None]) * picture.max() / (picture.max() + thickness))
        assert_close(made(x, "fog", severity), np.stack(theirs), 0.05)


def zoomed(pictures, factor):
    """The middle of each picture, enlarged by SciPy, and cut to 32 × 32."""
    inner = math.ceil(32 / factor)
    start = (32 - inner) // 2
    crop = pictures[:, start : start + inner, start : start + inner]
    out = np.stack([ndimage.zoom(p, (factor, factor, 1), order=1) for p in crop])
    trim = (out.shape[1] - 32) // 2
    return out[:, trim : trim + 32, trim : trim + 32]


def streak(picture, radius, sigma, degrees):
    """Motion blur pixel by pixel: a half Gaussian of 2 · radius + 1 taps along a ray."""
    taps = np.exp(-(np.arange(2 * radius + 1) ** 2) / (2 * sigma**2))
    out = np.zeros_like(picture)
    for i, weight in enumerate(taps / taps.sum()):
        down = math.ceil(i * math.sin(math.radians(degrees)) - 0.5)
        right = math.ceil(i * math.cos(math.radians(degrees)) - 0.5)
        rows, columns = np.clip(np.arange(32) + down, 0, 31), np.clip(np.arange(32) + right, 0, 31)
        out += weight * picture[rows][:, columns]
    return out


def diamond_square(decay, sample):
    """The fractal point by point on a torus of 32 × 32, with the random numbers of a sample."""
    field, step, wobble, stream = np.zeros((32, 32)), 32, 100.0, 0
    while step >= 2:
        half, count = step // 2, 32 // step
        # middles of squares, then middles of their upper edges, then of their left edges
        for down, right, reach in ((half, half, "square"), (0, half, "edge"), (half, 0, "edge")):
            stream += 1
            noise = draws().between(stream, -wobble, wobble, count, count)[sample].double().numpy()
            ends = [(-1, -1), (-1, 1), (1, -1), (1, 1)] if reach == "square" else [(-1, 0), (1, 0), (0, -1), (0, 1)]
            for i in range(count):
                for j in range(count):
                    r, c = i * step + down, j * step + right
                    mean = sum(field[(r + a * half) % 32, (c + b * half) % 32] for a, b in ends) / 4
                    field[r, c] = mean + wobble * noise[i, j]
        step, wobble = half, wobble / decay
    return (field - field.min()) / (field.max() - field.min())


def test_affine_maps_take_three_points_to_their_places():
    moves = draws().between(0, -3, 3, 3, 2)
    source = affine(32, moves)
    points = torch.tensor([[26.0, 26], [26, 6], [6, 6]], dtype=torch.float64)
    after = torch.cat([points + moves, torch.ones(12, 3, 1)], -1)
    assert torch.allclose(after @ source.transpose(1, 2), points.expand(12, -1, -1), atol=1e-6)


@pytest.mark.parametrize("severity", SEVERITIES)
def test_noise_has_the_sources_spread(severity):
    grey = torch.full((200, 3, 32, 32), 127, dtype=torch.uint8)
    value = 127 / 255
    spread = {
        "gaussian_noise": [0.04, 0.06, 0.08, 0.09, 0.10][severity - 1],
        "speckle_noise": value * [0.06, 0.1, 0.12, 0.16, 0.2][severity - 1],
        "shot_noise": math.sqrt(value / [500, 250, 100, 75, 50][severity - 1]),
    }
    for name, expected in spread.items():
        out = CORRUPTIONS[name](grey.float() / 255, severity, draws(200))
        assert float(out.mean()) == pytest.approx(value, abs=1e-3)
        assert float(out.std()) == pytest.approx(expected, rel=0.01)


@pytest.mark.parametrize("severity", SEVERITIES)
def test_impulses_are_half_salt_half_pepper(severity):
    amount = [0.01, 0.02, 0.03, 0.05, 0.07][severity - 1]
    out = corrupt(torch.full((300, 3, 32, 32), 127, dtype=torch.uint8), "impulse_noise", severity=severity)
    for extreme in (0, 255):
        share = float((out == extreme).float().mean())
        assert share == pytest.approx(amount / 2, abs=4 * math.sqrt(amount / 2 / out.numel()))
    assert float((out == 127).float().mean()) == pytest.approx(1 - amount, abs=0.002)


@pytest.mark.parametrize("white", [500, 75])
def test_shot_noise_inverts_the_poisson_distribution(x, white):
    u = draws().uniform(0, 3, 32, 32)
    theirs = stats.poisson.ppf(u.double(), x.double() / 255 * white)
    theirs[(x == 0).numpy()] = 0
    assert np.array_equal(noise.poisson(x.float() / 255, white, u), theirs)


def test_frost_has_the_colours_of_the_photographs():
    textures = weather.frosting(32, draws(1500)) * 255
    kind = (draws(1500).uniform(0) * 5).long()
    for k, (levels, _) in enumerate(weather.FROST):
        some = textures[kind == k].transpose(0, 1).flatten(1).double().numpy()
        assert 0.15 < float((kind == k).float().mean()) < 0.25
        assert np.abs(np.percentile(some, [10, 50, 90], axis=1).T - np.array(levels)[:, 1:4]).max() < 6
    x = torch.zeros(50, 3, 32, 32)
    assert torch.allclose(weather.frost(x + 0.5, 5, draws(50)) - weather.frost(x, 5, draws(50)), torch.tensor(0.375))


@pytest.mark.parametrize(("severity", "sigma", "threshold"), [(4, 0.7, 0.69), (5, 0.5, 0.68)])
def test_mud_covers_what_is_above_the_threshold(x, severity, sigma, threshold):
    layer = 0.65 + 0.1 * draws().normal(0, 32, 32).double().numpy()
    wet = (ndimage.gaussian_filter(layer, (0, sigma, sigma), mode="nearest") > threshold).astype(float)
    cover = ndimage.gaussian_filter(wet, (0, 0.6, 0.6), mode="nearest")
    cover = np.where(cover < 0.8, 0, cover)[..., None]
    theirs = floats(x) * (1 - cover) + np.array([63, 42, 20]) / 255 * cover
    assert_close(made(x, "spatter", severity), theirs)
    assert 0.02 < (cover > 0).mean() < 0.5


def test_edges_distances_and_histograms_of_water_by_hand():
    drop = torch.zeros(1, 32, 32)
    drop[:, 10:20, 10:20] = 200
    edge = water.edges(drop)[0]
    ring = torch.zeros(32, 32, dtype=torch.bool)
    ring[9:21, 9:21] = True
    ring[11:19, 11:19] = False
    assert edge.any()
    assert not (edge & ~ring).any()  # on the drop's border, and nowhere else
    assert edge[9:11, 12:18].any(0).all()
    away, exact = water.distances(edge[None])[0].numpy(), ndimage.distance_transform_edt(~edge.numpy())
    near = exact < 15
    assert np.abs(away - exact)[near].max() < 0.4  # the chamfer distance is an approximation
    assert water.distances(torch.zeros(1, 32, 32, dtype=torch.bool)).unique().tolist() == [20.0]
    picture = torch.tensor([[[3.0, 3], [7, 7]], [[1, 2], [4, 4]], [[9, 9], [9, 9]]])
    assert water.equalised(picture).tolist() == [[[0, 0], [255, 255]], [[0, 85], [255, 255]], [[9, 9], [9, 9]]]


def test_water_only_adds_light_where_drops_are(x):
    for severity in (1, 2, 3):
        gain = made(x, "spatter", severity) - floats(x) * 255
        assert gain.min() > -0.01
        assert gain.max() < 0.5 * 238 + 0.01
        assert np.allclose(gain[..., 1], gain[..., 2], atol=0.01)
        assert np.allclose(gain[..., 0] * 238, gain[..., 1] * 175, atol=3)
        assert 0.005 < (gain[..., 1] > 1).mean() < 0.6
