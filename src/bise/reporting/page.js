"use strict";
(() => {
  const root = document.documentElement;
  const byId = (id) => document.getElementById(id);

  const theme = byId("theme");
  const dark = () =>
    root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  const name = () => { theme.textContent = dark() ? "Light" : "Dark"; };
  theme.hidden = false;
  theme.addEventListener("click", () => { root.dataset.theme = dark() ? "light" : "dark"; name(); });
  name();

  const slider = byId("zeta");
  if (slider) {
    const { points, groups, steps, chosen } = JSON.parse(byId("points").textContent);
    // what lies just between two figures goes to the even one, as in the tables: 6.25 is 6.2, and 62.5 is 62
    const tenths = (value) => (value % 1 === 0.25 ? value - 0.05 : value).toFixed(1);
    const whole = (value) => (value % 1 === 0.5 ? 2 * Math.round(value / 2) : Math.round(value));
    const percent = (value) => (value === null ? "–" : tenths(100 * value) + "\u202f%");
    const cells = groups.length ? [...document.querySelectorAll("#heat-live td[data-group]")] : [];
    const words = groups.map((group) => group.words);
    const now = byId("now");
    const show = () => {
      const point = points[+slider.value];
      byId("r-zeta").textContent = point.zeta;
      byId("r-units").textContent = percent(point.open / point.all);
      byId("r-count").textContent = point.open + " of " + point.all;
      for (const key of ["unbiased", "worst_group", "aligned", "conflicting"]) {
        byId("r-" + key).textContent = percent(point[key]);
      }
      slider.setAttribute("aria-valuetext",
        "ζ " + point.zeta + (+slider.value === chosen ? ", the chosen one" : "") + ": " + point.open + " of " +
        point.all + " units kept, unbiased " + percent(point.unbiased) + ", worst group " + percent(point.worst_group));
      byId("r-note").textContent = point.closed_sites.length
        ? "A whole site is closed here (" + point.closed_sites.join(", ") + "): nothing passes, so every answer is the same."
        : +slider.value === chosen ? "This is the chosen threshold." : point.open === point.all ? "All units are kept: the model as it was." : "";
      const x = point.x.toFixed(1);
      now.setAttribute("x1", x);
      now.setAttribute("x2", x);
      for (const cell of cells) {
        const number = +cell.dataset.group;
        const value = point.groups[number];
        cell.firstChild.data = value === null ? "–" : whole(100 * value);
        cell.className = (value === null ? "none" : "h" + Math.min(steps, Math.max(0, Math.round(value * steps)))) +
          (cell.classList.contains("helps") ? " helps" : "");
        cell.title = words[number] + ": " + percent(value);
      }
    };
    slider.addEventListener("input", show);
    byId("back").addEventListener("click", () => { slider.value = chosen; show(); slider.focus(); });
    slider.value = chosen;
    byId("moved").hidden = false;
    byId("back").hidden = false;
    show();
  }

  const filter = byId("filter");
  if (filter) {
    const items = [...document.querySelectorAll("#sample-list > li")];
    const more = byId("more");
    const first = +filter.dataset.first;
    let all = false;
    const apply = () => {
      const wanted = filter.value;
      let shown = 0;
      let hidden = 0;
      for (const item of items) {
        const fits = wanted === "all" || item.dataset.kind === wanted || item.dataset.group === wanted;
        const visible = fits && (all || shown < first);
        item.hidden = !visible;
        if (visible) shown += 1;
        else if (fits) hidden += 1;
      }
      more.hidden = hidden === 0;
      more.textContent = "Show " + hidden + " more";
      byId("shown").textContent = shown + " shown";
    };
    filter.addEventListener("change", () => { all = false; apply(); });
    more.addEventListener("click", () => { all = true; apply(); });
    byId("filters").hidden = false;
    apply();
  }
})();
