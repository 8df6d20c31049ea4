// One small line chart in SVG: axes, lines, a crosshair, zoom by dragging, double click to see everything again.
//
// Made for curves that grow while they are looked at. A line is drawn with the least and the greatest value of every
// pixel's worth of points, so a chart of 10,000 points costs what one of 600 does (about a millisecond); a general
// plotting library took tens of milliseconds for the same, a dozen times a second of a run. Colours are the style
// sheet's, so a change of theme needs no drawing.
(() => {
  if (globalThis.WorkbenchChart) return;

  const SVG = "http://www.w3.org/2000/svg";
  const LEFT = 44, RIGHT = 10, TOP = 6, BOTTOM = 20;
  const DRAGGED = 6; // pixels that make a drag of a click

  const make = (tag, attributes = {}) => {
    const node = document.createElementNS(SVG, tag);
    for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
    return node;
  };

  // The first index of ascending `values` that is not below `value`.
  function lowerBound(values, value) {
    let low = 0, high = values.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (values[middle] < value) low = middle + 1;
      else high = middle;
    }
    return low;
  }

  // Indices of the points to draw of x[from, to): all, or the first, least, greatest and last of each of `columns`.
  function thinned(x, y, from, to, columns) {
    if (to - from <= 4 * columns) return Array.from({ length: to - from }, (_, i) => from + i);
    const found = [];
    const scale = columns / (x[to - 1] - x[from] || 1);
    const columnOf = (i) => Math.min(columns - 1, Math.floor((x[i] - x[from]) * scale)); // the last point has none of its own
    for (let i = from; i < to;) {
      const column = columnOf(i);
      const first = i;
      let least = i, greatest = i;
      for (; i < to && columnOf(i) === column; i++) {
        if (y[i] < y[least]) least = i;
        if (y[i] > y[greatest]) greatest = i;
      }
      for (const index of [first, Math.min(least, greatest), Math.max(least, greatest), i - 1]) if (index !== found[found.length - 1]) found.push(index);
    }
    return found;
  }

  // Round numbers from `low` to `high`, about `count` of them; whole ones if asked for.
  function ticks(low, high, count, whole = false) {
    const rough = (high - low) / count || 1;
    const power = 10 ** Math.floor(Math.log10(rough));
    let step = [1, 2, 5, 10].map((one) => one * power).find((one) => one >= rough * 0.999);
    if (whole) step = Math.max(1, Math.round(step));
    const found = [];
    for (let i = Math.ceil(low / step - 1e-9); i * step <= high + step * 1e-9; i++) found.push(i * step);
    return { values: found, step };
  }

  function label(value, step, share) {
    if (!value) return share ? "0%" : "0";
    if (share) return `${(100 * value).toFixed(step < 0.01 ? 1 : 0)}%`;
    const size = Math.abs(value);
    if (size && (size < 1e-3 || size >= 1e6)) return value.toExponential(Math.max(0, Math.floor(Math.log10(size)) - Math.floor(Math.log10(step) + 1e-9))).replace("-", "\u2212").replace("e+", "e");
    const digits = Math.max(0, -Math.floor(Math.log10(step) + 1e-9));
    return value.toFixed(digits).replace("-", "\u2212");
  }

  class LineChart {
    // `lines` is a live list of {x, y}: ascending numbers and values. Told of: onHover(x or null), onPick(x), and
    // onZoom([from, to] or null).
    constructor(root, lines, { share = false, onHover, onPick, onZoom }) {
      Object.assign(this, { lines, share, onHover, onPick, onZoom, range: null, width: 0, height: 132 });
      this.svg = make("svg", { class: "main-svg", height: this.height, "aria-hidden": "true" });
      this.grid = make("g", { class: "grid" });
      this.paths = lines.map((_, i) => make("path", { class: `path path-${i}` }));
      this.marks = lines.map((_, i) => make("path", { class: `marks marks-${i}` }));
      this.cross = make("line", { class: "cross", y1: TOP, y2: this.height - BOTTOM, visibility: "hidden" });
      this.chosen = make("rect", { class: "chosen", y: TOP, height: this.height - TOP - BOTTOM, visibility: "hidden" });
      this.svg.append(this.grid, ...this.paths, ...this.marks, this.chosen, this.cross);
      root.append(this.svg);
      this.listen();
    }

    get empty() { return !this.lines.some((line) => line.x.length); }

    domain() {
      if (this.range) return this.range;
      const filled = this.lines.filter((line) => line.x.length);
      const low = Math.min(0, ...filled.map((line) => line.x[0]));
      return [low, Math.max(low + 5, ...filled.map((line) => line.x[line.x.length - 1]))];
    }

    // Draws what is there now; `width` in pixels.
    draw(width = this.width) {
      this.width = width;
      if (this.empty || width < LEFT + RIGHT + 20) return;
      this.svg.setAttribute("width", width);
      const [from, to] = this.domain();
      const inner = width - LEFT - RIGHT;
      const shown = this.lines.map(({ x, y }) => {
        const first = Math.max(0, lowerBound(x, from) - 1), last = Math.min(x.length, lowerBound(x, to + 1e-9) + 1);
        return thinned(x, y, first, last, Math.ceil(inner / 2));
      });
      const [low, high] = this.extent(shown, from, to);
      this.toX = (value) => LEFT + ((value - from) / (to - from || 1)) * inner;
      const toY = (value) => this.height - BOTTOM - ((value - low) / (high - low)) * (this.height - TOP - BOTTOM);
      this.drawGrid(from, to, low, high, toY);
      shown.forEach((indices, i) => {
        const { x, y } = this.lines[i];
        const points = indices.map((at) => `${this.toX(x[at]).toFixed(1)} ${toY(y[at]).toFixed(1)}`);
        this.paths[i].setAttribute("d", points.length ? `M${points.join("L")}` : "");
        // A metric that is measured now and then shows where it was.
        const sparse = x.length < 3 || (x[x.length - 1] - x[0]) / (x.length - 1) >= 2;
        this.marks[i].setAttribute("d", sparse && points.length <= inner / 5 ? points.map((point) => `M${point}h0`).join("") : "");
      });
      this.point(this.pointed ?? null);
    }

    extent(shown, from, to) {
      let low = this.share ? 0 : Infinity, high = this.share ? 0.05 : -Infinity;
      shown.forEach((indices, i) => {
        const { x, y } = this.lines[i];
        for (const at of indices) {
          if (x[at] < from || x[at] > to) continue;
          if (y[at] < low) low = y[at];
          if (y[at] > high) high = y[at];
        }
      });
      if (low > high) [low, high] = [0, 1];
      if (low === high) [low, high] = [low - (Math.abs(low) || 1) / 2, high + (Math.abs(high) || 1) / 2];
      const margin = (high - low) * 0.06;
      return [this.share && low >= 0 ? low : low - margin, high + margin];
    }

    drawGrid(from, to, low, high, toY) {
      const across = ticks(from, to, Math.max(2, Math.floor(this.width / 70)), true);
      const up = ticks(low, high, 4);
      const key = JSON.stringify([this.width, from, to, up, low, high]);
      if (key === this.gridKey) return;
      this.gridKey = key;
      const text = (value, x, y, anchor) => {
        const node = make("text", { x, y, "text-anchor": anchor });
        node.textContent = value;
        return node;
      };
      this.grid.replaceChildren(
        ...up.values.flatMap((value) => [make("line", { x1: LEFT, x2: this.width - RIGHT, y1: toY(value), y2: toY(value) }), text(label(value, up.step, this.share), LEFT - 5, toY(value) + 3.5, "end")]),
        ...across.values.map((value) => {
          const x = this.toX(value), outside = x > this.width - 3 * RIGHT;
          return text(label(value, across.step, false), outside ? Math.min(this.width, x + RIGHT) : x, this.height - 6, outside ? "end" : "middle");
        }),
      );
    }

    // Puts the crosshair at a step, or takes it away.
    point(step) {
      this.pointed = step;
      const at = step === null || !this.toX ? -1 : this.toX(step);
      const there = at >= LEFT - 0.5 && at <= this.width - RIGHT + 0.5;
      this.cross.setAttribute("visibility", there ? "visible" : "hidden");
      if (there) this.cross.setAttribute("transform", `translate(${at.toFixed(1)} 0)`);
    }

    zoom(range) {
      this.range = range;
      this.draw();
    }

    // The step of the drawn point nearest to a place on the screen.
    stepAt(clientX) {
      const [from, to] = this.domain();
      const value = from + ((clientX - this.svg.getBoundingClientRect().left - LEFT) / (this.width - LEFT - RIGHT)) * (to - from);
      let best = null;
      for (const { x } of this.lines) {
        const at = lowerBound(x, value);
        for (const one of [x[at - 1], x[at]]) if (one !== undefined && (best === null || Math.abs(one - value) < Math.abs(best - value))) best = one;
      }
      return { value: Math.min(to, Math.max(from, value)), best };
    }

    listen() {
      let start = null;
      const svg = this.svg;
      svg.addEventListener("pointerdown", (event) => {
        if (event.button !== 0 || this.empty) return;
        start = { x: event.clientX, value: this.stepAt(event.clientX).value };
        svg.setPointerCapture(event.pointerId);
      });
      svg.addEventListener("pointermove", (event) => {
        if (this.empty) return;
        const { value, best } = this.stepAt(event.clientX);
        if (start && Math.abs(event.clientX - start.x) > DRAGGED) {
          const [a, b] = [start.value, value].sort((one, other) => one - other).map(this.toX);
          for (const [name, set] of Object.entries({ x: a, width: b - a, visibility: "visible" })) this.chosen.setAttribute(name, set);
        }
        this.onHover(best);
      });
      svg.addEventListener("pointerup", (event) => {
        if (!start) return;
        const began = start;
        start = null;
        this.chosen.setAttribute("visibility", "hidden");
        const { value, best } = this.stepAt(event.clientX);
        if (Math.abs(event.clientX - began.x) <= DRAGGED) this.onPick(best);
        else if (Math.abs(value - began.value) > 1e-9) this.onZoom([began.value, value].sort((one, other) => one - other));
      });
      svg.addEventListener("pointercancel", () => { start = null; this.chosen.setAttribute("visibility", "hidden"); });
      svg.addEventListener("pointerleave", () => { if (!start) this.onHover(null); });
      svg.addEventListener("dblclick", () => this.onZoom(null));
    }
  }

  globalThis.WorkbenchChart = { LineChart, thinned, ticks, label, lowerBound };
})();
