// One small line chart in SVG: axes, lines, a crosshair, zoom by dragging, double click to see everything again. A line
// can be drawn as its moving average with the values faint behind it, and on a logarithmic axis.
//
// Made for curves that grow while they are looked at. A line is drawn with the least and the greatest value of every
// pixel's worth of points, so a chart of 10,000 points costs what one of 600 does (about a millisecond); a general
// plotting library took tens of milliseconds for the same, a dozen times a second of a run. Colours are the style
// sheet's, so a change of theme needs no drawing.
(() => {
  if (globalThis.WorkbenchChart) return;

  const SVG = "http://www.w3.org/2000/svg";
  const LEFT = 44, RIGHT = 10, TOP = 6, BOTTOM = 20;
  const COLOURS = 8; // of lines; a ninth begins again
  const DRAGGED = 6; // pixels that make a drag of a click
  const SECOND = 400; // milliseconds in which a click may turn out to be the first half of a double click

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
    const wide = (x[to - 1] - x[from] || 1) / columns;
    for (let i = from, column = 1; i < to; column++) {
      const first = i, end = column >= columns ? Infinity : x[from] + column * wide; // the last point has none of its own
      let least = i, greatest = i;
      for (; i < to && x[i] < end; i++) {
        if (y[i] < y[least]) least = i;
        if (y[i] > y[greatest]) greatest = i;
      }
      if (i > first) for (const index of [first, Math.min(least, greatest), Math.max(least, greatest), i - 1]) if (index !== found[found.length - 1]) found.push(index);
    }
    return found;
  }

  // The exponential moving average of `y`, corrected for its start: s_t = w s_(t-1) + (1 - w) y_t from s_0 = 0, and what
  // is shown is s_t / (1 - w^t), as in Adam and TensorBoard. It looks at no later value. `before` is what an earlier call
  // gave for the first of these values and the same weight: the rest is added to it.
  function averaged(y, weight, before = null) {
    const found = before && before.weight === weight && before.values.length <= y.length ? before : { weight, last: 0, power: 1, values: [] };
    for (let i = found.values.length; i < y.length; i++) {
      found.last = weight * found.last + (1 - weight) * y[i];
      found.power *= weight;
      found.values.push(found.last / (1 - found.power));
    }
    return found;
  }

  // Round numbers from `low` to `high`, about `count` of them; whole ones if asked for.
  function ticks(low, high, count, whole = false) {
    const rough = (high - low) / count || 1;
    const power = 10 ** Math.floor(Math.log10(rough));
    let step = [1, 2, 5, 10].map((one) => one * power).find((one) => one >= rough * 0.999);
    if (whole) step = Math.max(1, Math.round(step));
    const first = Math.ceil(low / step - 1e-9), last = Math.floor(high / step + 1e-9);
    return { values: Array.from({ length: Math.max(0, last - first + 1) }, (_, i) => (first + i) * step), step };
  }

  // Round numbers from `low` to `high`, both above 0, for a logarithmic axis, each with the place it is rounded to: powers
  // of ten, with their 2 and 5 fold where there are few, or as on a linear axis where there are fewer still.
  function logTicks(low, high) {
    const first = Math.floor(Math.log10(low)), last = Math.ceil(Math.log10(high));
    const every = Math.max(1, Math.ceil((last - first) / 5));
    for (const [folds, enough] of [[[1], 3], [[1, 2, 5], 2]]) {
      const found = [];
      for (let power = first; power <= last; power += every) for (const fold of folds) found.push({ value: fold * 10 ** power, step: 10 ** power });
      const inside = found.filter((one) => one.value >= low * (1 - 1e-9) && one.value <= high * (1 + 1e-9));
      if (inside.length >= enough) return inside;
    }
    const { values, step } = ticks(low, high, 4);
    return values.map((value) => ({ value, step }));
  }

  function label(value, step, share) {
    if (!value) return share ? "0%" : "0";
    if (share) return `${(100 * value).toFixed(Math.max(0, -Math.floor(Math.log10(100 * step) + 1e-9)))}%`;
    const size = Math.abs(value);
    if (size && (size < 1e-3 || size >= 1e6)) return value.toExponential(Math.max(0, Math.floor(Math.log10(size)) - Math.floor(Math.log10(step) + 1e-9))).replace("-", "\u2212").replace("e+", "e");
    const digits = Math.max(0, -Math.floor(Math.log10(step) + 1e-9));
    return value.toFixed(digits).replace("-", "\u2212");
  }

  // The steps from which to which lines are drawn: what is zoomed to, or all.
  function domainOf(lines, range) {
    if (range) return range;
    const filled = lines.filter((line) => line.x.length);
    const low = Math.min(0, ...filled.map((line) => line.x[0]));
    return [low, Math.max(low + 5, ...filled.map((line) => line.x[line.x.length - 1]))];
  }

  // What a key does to a chart of {lines, range, pointed, onHover, onPick, onZoom}; false for one that does nothing.
  // Arrows, Home and End move the crosshair over the logged steps, Enter picks its step, + and - zoom about it, 0 shows
  // everything, Escape takes the crosshair away.
  function press(key, { lines, range, pointed, onHover, onPick, onZoom }) {
    if (!lines.some((line) => line.x.length)) return false;
    const [from, to] = domainOf(lines, range), at = pointed ?? null;
    // To the logged step in sight that is next before (`by` below 0) or after a place.
    const move = (place, by) => {
      const found = lines.map(({ x }) => x[by < 0 ? lowerBound(x, place) - 1 : lowerBound(x, place + 1e-9)]).filter((one) => one >= from && one <= to);
      if (found.length) onHover(by < 0 ? Math.max(...found) : Math.min(...found));
    };
    const zoom = (times) => {
      const whole = domainOf(lines, null);
      const middle = at ?? (from + to) / 2, half = (times * (to - from)) / 2;
      const wanted = [Math.max(whole[0], middle - half), Math.min(whole[1], middle + half)];
      if (wanted[0] <= whole[0] && wanted[1] >= whole[1]) onZoom(null);
      else if (wanted[1] - wanted[0] >= 2) onZoom(wanted);
    };
    const keys = {
      ArrowLeft: () => move(at ?? to + 1, -1),
      ArrowRight: () => move(at ?? from - 1, 1),
      Home: () => move(from - 1e-6, 1),
      End: () => move(to + 1e-6, -1),
      Enter: () => { if (at !== null) onPick(at); },
      Escape: () => onHover(null),
      "+": () => zoom(0.5), "=": () => zoom(0.5), "-": () => zoom(2), 0: () => onZoom(null),
    };
    if (!Object.hasOwn(keys, key)) return false;
    keys[key]();
    return true;
  }

  class LineChart {
    // `lines` is a live list of {x, y, least}: ascending numbers, values, and the least of them; one may be added to it.
    // Told of: onHover(x or null), onPick(x), and onZoom([from, to] or null).
    constructor(root, lines, { share = false, onHover, onPick, onZoom }) {
      Object.assign(this, { lines, share, onHover, onPick, onZoom, range: null, smoothing: 0, log: false, width: 0, height: 132 });
      this.svg = make("svg", { class: "main-svg", height: this.height, "aria-hidden": "true" });
      this.grid = make("g", { class: "grid" });
      this.drawn = make("svg", { y: 0, height: this.height }); // cuts off what lies beside the axes
      this.nodes = [];
      this.cross = make("line", { class: "cross", y1: TOP, y2: this.height - BOTTOM, visibility: "hidden" });
      this.chosen = make("rect", { class: "chosen", y: TOP, height: this.height - TOP - BOTTOM, visibility: "hidden" });
      this.svg.append(this.grid, this.drawn, this.chosen, this.cross);
      root.append(this.svg);
      this.listen();
    }

    get empty() { return !this.lines.some((line) => line.x.length); }

    // Whether a logarithmic axis can show every value.
    get positive() { return this.lines.every((line) => !line.x.length || line.least > 0); }

    domain() { return domainOf(this.lines, this.range); }

    press(key) { return press(key, this); }

    nodesOf(i) {
      while (this.nodes.length <= i) {
        const place = this.nodes.length;
        const one = Object.fromEntries(["raw", "path", "marks"].map((name) => [name, make("path", { class: `${name} ${name}-${place % COLOURS}` })]));
        this.nodes.push(one);
        this.drawn.append(one.raw, one.path, one.marks);
      }
      return this.nodes[i];
    }

    // Takes away what is drawn.
    clear() {
      this.nodes.splice(0).forEach((one) => Object.values(one).forEach((node) => node.remove()));
      this.pointed = null;
    }

    // Draws what is there now; `width` in pixels.
    draw(width = this.width) {
      this.width = width;
      if (this.empty || width < LEFT + RIGHT + 20) return;
      this.svg.setAttribute("width", width);
      const [from, to] = this.domain();
      const inner = width - LEFT - RIGHT, columns = Math.ceil(inner / 2);
      const log = this.log && this.positive;
      const curves = this.lines.map((line) => {
        const { x, y } = line;
        const first = Math.max(0, lowerBound(x, from) - 1), last = Math.min(x.length, lowerBound(x, to + 1e-9) + 1);
        const curve = { x, y, indices: thinned(x, y, first, last, columns), smooth: null };
        if (this.smoothing) {
          line.average = averaged(y, this.smoothing, line.average);
          curve.smooth = { y: line.average.values, indices: thinned(x, line.average.values, first, last, columns) };
        }
        return curve;
      });
      const [low, high] = this.extent(curves, from, to, log);
      for (const [name, value] of Object.entries({ x: LEFT - 3, width: inner + 6, viewBox: `${LEFT - 3} 0 ${inner + 6} ${this.height}` })) this.drawn.setAttribute(name, value);
      this.toX = (value) => LEFT + ((value - from) / (to - from || 1)) * inner;
      const scale = (this.height - TOP - BOTTOM) / (high - low);
      const toY = (value) => this.height - BOTTOM - ((log ? Math.log10(value) : value) - low) * scale;
      this.drawGrid(from, to, log ? logTicks(10 ** low, 10 ** high) : null, low, high, toY);
      const round = (value) => Math.round(value * 10) / 10;
      const points = (x, y, indices) => indices.map((at) => `${round(this.toX(x[at]))} ${round(toY(y[at]))}`);
      const joined = (places) => (places.length ? `M${places.join("L")}` : "");
      curves.forEach(({ x, y, indices, smooth }, i) => {
        const nodes = this.nodesOf(i);
        const places = points(x, y, indices);
        nodes.raw.setAttribute("d", smooth ? joined(places) : "");
        nodes.path.setAttribute("d", joined(smooth ? points(x, smooth.y, smooth.indices) : places));
        // A metric that is measured now and then shows where it was.
        const sparse = x.length < 3 || (x[x.length - 1] - x[0]) / (x.length - 1) >= 2;
        nodes.marks.setAttribute("d", sparse && places.length <= inner / 5 ? places.map((place) => `M${place}h0`).join("") : "");
      });
      this.point(this.pointed ?? null);
    }

    // The ends of the y axis: of the values drawn, or of their logarithms to base 10.
    extent(curves, from, to, log) {
      const zero = this.share && !log;
      let low = zero ? 0 : Infinity, high = zero ? 0.05 : -Infinity;
      for (const curve of curves) {
        const { x } = curve;
        for (const { y, indices } of curve.smooth ? [curve, curve.smooth] : [curve]) {
          for (const at of indices) {
            if (x[at] < from || x[at] > to) continue;
            if (y[at] < low) low = y[at];
            if (y[at] > high) high = y[at];
          }
        }
      }
      if (low > high) [low, high] = log ? [1, 10] : [0, 1];
      if (log) [low, high] = [Math.log10(low), Math.log10(high)];
      if (!log && low === 0 && high === 0) high = 1;
      // Values that differ by their rounding alone are one value: smoothing, or a mean of equal scores, gives such.
      if (high - low <= 1e-9 * Math.max(Math.abs(low), Math.abs(high))) [low, high] = log ? [low - 0.3, high + 0.3] : [low - (Math.abs(low) || 1) / 2, high + (Math.abs(high) || 1) / 2];
      const margin = (high - low) * 0.06;
      return [zero && low >= 0 ? low : low - margin, high + margin];
    }

    drawGrid(from, to, logarithmic, low, high, toY) {
      const across = ticks(from, to, Math.max(2, Math.floor(this.width / 70)), true);
      const linear = ticks(low, high, 4);
      const up = logarithmic ?? linear.values.map((value) => ({ value, step: linear.step }));
      const key = JSON.stringify([this.width, from, to, up, low, high]);
      if (key === this.gridKey) return;
      this.gridKey = key;
      const text = (value, x, y, anchor) => {
        const node = make("text", { x, y, "text-anchor": anchor });
        node.textContent = value;
        return node;
      };
      this.grid.replaceChildren(
        ...up.flatMap(({ value, step }) => [make("line", { x1: LEFT, x2: this.width - RIGHT, y1: toY(value), y2: toY(value) }), text(label(value, step, this.share), LEFT - 5, toY(value) + 3.5, "end")]),
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
      let start = null, dragged = false, waiting = 0;
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
        const { value } = this.stepAt(event.clientX);
        dragged = Math.abs(event.clientX - began.x) > DRAGGED;
        if (dragged && Math.abs(value - began.value) > 1e-9) this.onZoom([began.value, value].sort((one, other) => one - other));
      });
      // A double click shows everything again and picks nothing: while there is something to show, a click waits for its
      // second half.
      svg.addEventListener("click", (event) => {
        clearTimeout(waiting);
        if (dragged || this.empty || event.detail > 1) return;
        const { best } = this.stepAt(event.clientX);
        if (this.range) waiting = setTimeout(() => this.onPick(best), SECOND);
        else this.onPick(best);
      });
      svg.addEventListener("pointercancel", () => { start = null; this.chosen.setAttribute("visibility", "hidden"); });
      svg.addEventListener("pointerleave", () => { if (!start) this.onHover(null); });
      svg.addEventListener("dblclick", () => { clearTimeout(waiting); this.onZoom(null); });
    }
  }

  globalThis.WorkbenchChart = { LineChart, COLOURS, press, averaged, thinned, ticks, logTicks, label, lowerBound };
})();
