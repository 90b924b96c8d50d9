"use strict";
// Shows the exact values of a chart at the pointer, at a finger, and where arrow keys went. Lines: what
// the row of the table below says. Heat: what the map's attributes say. Bars: what each says of itself.
// Text is written as text only.

// A row's last cell ends with the line.
const text = (cell) => cell.textContent.trim();
const clamp = (value, low, high) => Math.max(low, Math.min(high, value));

// What a chart can show: how many steps along and up there are, where a place is, what it says.
const models = {
  lines(chart) {
    const table = chart.nextElementSibling.querySelector("table");
    const names = [...table.tHead.rows[0].cells].map(text);
    const rows = [...table.tBodies[0].rows];
    const xs = rows.map((row) => Number(row.dataset.x));
    const unit = chart.dataset.unit;
    const swatches = [...chart.previousElementSibling.querySelectorAll(".swatch")];
    // Lines need not have points at the same moments: of each the nearest, with its own moment.
    const nearest = (at, column) => {
      const found = [-1, 1].map((way) => {
        let row = at;
        while (rows[row] && text(rows[row].cells[column]) === "") row += way;
        return row;
      });
      const away = (row) => (rows[row] ? Math.abs(xs[row] - xs[at]) : Infinity);
      return away(found[0]) <= away(found[1]) ? found[0] : found[1];
    };
    return {
      along: rows.length,
      up: 1,
      at(x) {
        const away = (n) => Math.abs(xs[n] - x);
        let best = 0;
        xs.forEach((_, n) => { if (away(n) < away(best)) best = n; });
        // Of those that the eye cannot tell apart the one that has most lines.
        const near = Math.max(away(best), 2);
        const full = (n) => [...rows[n].cells].filter((cell) => text(cell) !== "").length;
        xs.forEach((_, n) => { if (away(n) <= near && full(n) > full(best)) best = n; });
        return [best, 0];
      },
      place: ([n]) => [xs[n], 1000],
      say([n]) {
        const said = [[null, `${names[0]}: ${text(rows[n].cells[0])}`]];
        for (let column = 1; column < names.length; column++) {
          const row = nearest(n, column);
          if (!rows[row]) continue;
          const cells = rows[row].cells;
          const other = row === n ? "" : ` (at ${text(cells[0])})`;
          said.push([swatches[column - 1], `${names[column]}: ${text(cells[column])} ${unit}${other}`]);
        }
        return said;
      },
    };
  },
  heat(chart) {
    const data = chart.dataset;
    const tops = data.tops.split(",").map(Number);
    const times = data.times.split(";");
    const ends = times.map((time) => Number(time.replaceAll(",", "")));
    const groups = data.groups.split("\n");
    const cells = data.cells.split(";").map((row) => row.split(","));
    const right = ends[ends.length - 1];
    return {
      along: times.length,
      up: groups.length,
      at(x, y) {
        const n = ends.findIndex((end) => end >= (x / 1000) * right);
        const group = tops.findIndex((top) => top >= 1000 - y);
        return [n < 0 ? times.length - 1 : n, group < 0 ? groups.length - 1 : group];
      },
      place: ([n, group]) => [
        ((n ? ends[n - 1] : 0) / right + ends[n] / right) * 500,
        1000 - ((group ? tops[group - 1] : 0) + tops[group]) / 2,
      ],
      say: ([n, group]) => [
        [null, `simulated time in seconds: ${n ? times[n - 1] : "0"} to ${times[n]}`],
        [null, groups[group]],
        [null, `${(cells[group][n] * data.scale).toLocaleString("en-US")} accesses`],
      ],
    };
  },
  bars(chart) {
    const bars = [...chart.querySelectorAll("[data-tip]")];
    return {
      along: 1,
      up: bars.length,
      bars,
      say: ([, n]) => bars[n].dataset.tip.split("; ").map((line) => [null, line]),
    };
  },
};

function enliven(chart) {
  const kind = ["lines", "heat", "bars"].find((name) => chart.classList.contains(name));
  const area = chart.querySelector(".area");
  let model = null;
  let now = null;
  const tip = document.createElement("output");
  tip.className = "tip";
  tip.hidden = true;
  const cross = document.createElement("i");
  cross.className = "cross";
  cross.hidden = true;
  chart.append(tip);
  (area || chart).append(cross);

  function hide() {
    now = null;
    tip.hidden = cross.hidden = true;
  }
  function show(place) {
    model ??= models[kind](chart);
    if (model.along === 0 || model.up === 0) return;
    now = [clamp(place[0], 0, model.along - 1), clamp(place[1], 0, model.up - 1)];
    const lines = model.say(now).map(([swatch, words]) => {
      const line = document.createElement("span");
      if (swatch) line.append(swatch.cloneNode(), " ");
      line.append(words);
      return line;
    });
    tip.replaceChildren(...lines);
    tip.hidden = false;
    const box = chart.getBoundingClientRect();
    if (area) {
      const [x, y] = model.place(now);
      const inner = area.getBoundingClientRect();
      const left = inner.left - box.left + (x / 1000) * inner.width;
      cross.hidden = false;
      cross.style.left = `${x / 10}%`;
      cross.style.setProperty("--y", `${y / 10}%`);
      const beside = left > box.width / 2 ? left - tip.offsetWidth - 14 : left + 14;
      tip.style.left = `${clamp(beside, 0, box.width - tip.offsetWidth)}px`;
      tip.style.top = `${inner.top - box.top + 4}px`;
    } else {
      const row = model.bars[now[1]].getBoundingClientRect();
      const left = row.left - box.left + row.width / 4;
      tip.style.left = `${clamp(left, 0, box.width - tip.offsetWidth)}px`;
      tip.style.top = `${row.bottom - box.top}px`;
    }
  }
  function point(event) {
    model ??= models[kind](chart);
    if (area) {
      const box = area.getBoundingClientRect();
      const part = (at, from, size) => clamp(((at - from) / size) * 1000, 0, 1000);
      show(model.at(part(event.clientX, box.left, box.width), part(event.clientY, box.top, box.height)));
    } else {
      const at = model.bars.indexOf(event.target.closest("[data-tip]"));
      if (at >= 0) show([0, at]);
    }
  }
  const live = area || chart;
  live.addEventListener("pointermove", point);
  live.addEventListener("pointerdown", point);
  live.addEventListener("pointerleave", (event) => {
    if (event.pointerType === "mouse") hide();
  });
  chart.addEventListener("focus", () => {
    if (chart.matches(":focus-visible") && !now) show([0, 0]);
  });
  chart.addEventListener("blur", hide);
  const up = kind === "bars" ? -1 : 1;
  const steps = {
    ArrowLeft: ([x, y]) => [x - 1, y],
    ArrowRight: ([x, y]) => [x + 1, y],
    PageUp: ([x, y]) => [x - 20, y],
    PageDown: ([x, y]) => [x + 20, y],
    ArrowUp: ([x, y]) => [x, y + up],
    ArrowDown: ([x, y]) => [x, y - up],
    Home: ([, y]) => [0, y],
    End: ([, y]) => [Infinity, y],
  };
  chart.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.altKey || event.metaKey) return;
    if (event.key === "Escape") hide();
    const step = steps[event.key];
    if (!step) return;
    event.preventDefault();
    show(now ? step(now) : [0, 0]);
  });
}

document.querySelectorAll(".chart").forEach(enliven);

// Whether a table is wider than its box: only then the hint, and a stop for the keyboard.
const watch = new ResizeObserver((boxes) => {
  for (const { target } of boxes) {
    const fits = target.scrollWidth <= target.clientWidth + 1;
    target.parentElement.classList.toggle("fits", fits);
    target.parentElement.classList.toggle("cut", !fits);
    if (fits) target.removeAttribute("tabindex");
    else target.tabIndex = 0;
  }
});
document.querySelectorAll(".scroll").forEach((box) => watch.observe(box));
