// Live curves: small multiples, one chart a panel (see PANELS in curves.py).
//
// Rows are added as they arrive; a zoom stays where it is. Zooming one chart zooms all; pointing at a step shows every
// chart's values there. What is to be done for the charts, taking in a long log or drawing, is done a few milliseconds
// a turn, so that the page never stands still for it; a chart out of sight is drawn when it comes into sight.
//
// Smoothing draws every line as its moving average (see averaged in chart.js) with the logged values faint behind it; the
// numbers in the captions stay the logged ones. What is shared with the curves of several runs (overlay.js) is here too:
// the bar with smoothing and zoom, a figure's menu, and files.
(() => {
  if (globalThis.WorkbenchCurves) return;

  const BUDGET = 4; // milliseconds of a turn
  const PLACE = "<name>"; // of a reward's name in a metric
  const SMOOTHING = "workbench-smoothing"; // of the browser's tab

  function el(tag, attributes = {}, ...children) {
    const node = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) {
      if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
      else if (value !== false) node.setAttribute(name, value === true ? "" : value);
    }
    node.append(...children);
    return node;
  }

  // ── work, a little each turn ─────────────────────────────────────────────────────────────────────────────────

  const jobs = [];
  let scheduled = false;
  function later(job) {
    jobs.push(job);
    if (!scheduled) schedule();
  }
  function schedule() {
    scheduled = true;
    setTimeout(work); // not an animation frame: those stop in a tab that is not looked at, and a log is long
  }
  function work() {
    const until = performance.now() + BUDGET;
    while (jobs.length && performance.now() < until) jobs.shift()();
    scheduled = false;
    if (jobs.length) schedule();
  }

  let loading = null;
  // Plotly, for who draws with it; the charts here do not.
  function loadPlotly(url) {
    if (globalThis.Plotly) return Promise.resolve();
    loading ??= new Promise((resolve, reject) => {
      const script = document.createElement("script");
      script.src = url;
      script.onload = resolve;
      script.onerror = () => { loading = null; reject(new Error("Plotly could not be loaded")); };
      document.head.append(script);
    });
    return loading;
  }

  function format(value) {
    if (value === null || value === undefined) return "–";
    const size = Math.abs(value);
    const text = size === 0 ? "0" : size >= 1000 ? size.toFixed(0) : size >= 100 ? size.toFixed(1) : size >= 1 ? size.toFixed(2)
      : size >= 0.001 ? size.toFixed(3) : size.toExponential(1);
    return (value < 0 ? "\u2212" : "") + text;
  }

  // Base64 of little-endian float32 as numbers.
  function numbers(text) {
    const characters = atob(text);
    const bytes = new Uint8Array(characters.length);
    for (let i = 0; i < bytes.length; i++) bytes[i] = characters.charCodeAt(i);
    return Array.from(new Float32Array(bytes.buffer));
  }

  const least = (values, from = 0, found = Infinity) => {
    for (let i = from; i < values.length; i++) if (values[i] < found) found = values[i];
    return found;
  };

  // ── shared with overlay.js: smoothing and zoom, a figure's menu, files ───────────────────────────────────────

  // Above the charts: how much is smoothed, and what of the run is shown while that is not all of it.
  function bar({ onSmooth, onShowAll }) {
    let kept = 0;
    try { kept = Number(sessionStorage.getItem(SMOOTHING)) || 0; } catch { /* no storage: off */ }
    const output = el("output");
    const slider = el("input", { type: "range", min: 0, max: 0.99, step: 0.01, "aria-label": "Smoothing" });
    const say = () => { output.textContent = Number(slider.value) ? Number(slider.value).toFixed(2) : "off"; };
    slider.addEventListener("input", () => {
      say();
      try { sessionStorage.setItem(SMOOTHING, slider.value); } catch { /* lasts until reload */ }
      onSmooth(Number(slider.value));
    });
    slider.value = kept;
    say();
    const all = el("button", { type: "button", class: "show-all", hidden: true, title: "Or double click a chart", onclick: onShowAll });
    const node = el("div", { class: "curves-bar", hidden: true },
      el("label", { class: "smoothing", title: "Exponential moving average with this weight on what came before. The logged values stay faint behind it." }, "smoothing ", slider, output), all);
    const zoomed = (range) => {
      all.hidden = !range;
      if (range) all.textContent = `steps ${Math.ceil(range[0])}\u2013${Math.floor(range[1])} · show all`;
    };
    // Another set of charts may have been smoothed since this was last seen.
    const refresh = () => {
      let now = slider.value;
      try { now = sessionStorage.getItem(SMOOTHING) ?? now; } catch { /* as above */ }
      if (Number(now) === Number(slider.value)) return;
      slider.value = now;
      say();
      onSmooth(Number(slider.value));
    };
    return { node, zoomed, refresh, get smoothing() { return Number(slider.value); } };
  }

  // A figure's own menu: a logarithmic axis where all values are above 0, and the figure as a file.
  function menu(title, { onLog, png, csv }) {
    const box = el("input", { type: "checkbox", onchange: () => onLog(box.checked) });
    const log = el("label", {}, box, " log scale");
    const said = el("span", { class: "said", role: "status" });
    const save = (make) => async () => {
      try { await make(); node.open = false; } catch (error) { said.textContent = `No file was made: ${error.message ?? error}`; }
    };
    const node = el("details", { class: "figure-menu", title: "" }, el("summary", { "aria-label": `Options of ${title}` }, "\u22ef"),
      el("div", { role: "group", "aria-label": `Options of ${title}` }, log, el("button", { type: "button", onclick: save(png) }, "PNG"), el("button", { type: "button", onclick: save(csv) }, "CSV"), said));
    return {
      node,
      positive(is) {
        if (box.disabled === !is) return;
        box.disabled = !is;
        log.classList.toggle("off", !is);
        log.title = is ? "" : "A logarithmic axis needs values above 0.";
      },
    };
  }
  document.addEventListener("click", (event) => {
    document.querySelectorAll(".figure-menu[open]").forEach((one) => { if (!one.contains(event.target)) one.open = false; });
  });
  document.addEventListener("keydown", (event) => {
    if (event.key !== "Escape") return;
    document.querySelectorAll(".figure-menu[open]").forEach((one) => {
      if (one.contains(document.activeElement)) one.querySelector("summary").focus();
      one.open = false;
    });
  });

  const more = () => {
    const grid = el("div", { class: "curves" });
    return { grid, node: el("details", { class: "more-curves", hidden: true }, el("summary", {}, "More curves"), grid) };
  };

  function download(name, blob) {
    const url = URL.createObjectURL(blob);
    const anchor = el("a", { href: url, download: name, hidden: true });
    document.body.append(anchor);
    anchor.click();
    anchor.remove();
    setTimeout(() => URL.revokeObjectURL(url), 60000);
  }

  const fileName = (...parts) => parts.filter(Boolean).join("-").replace(/[^\w.-]+/g, "_");

  // One row a step and one column a line, [[name, steps, values], …]; empty where a line has no value. A name that a
  // spreadsheet would take for a formula is led by an apostrophe.
  function csv(columns) {
    const cell = (text) => `"${(/^[=+\-@\t\r]/.test(text) ? `'${text}` : text).replaceAll('"', '""')}"`;
    const steps = [...new Set(columns.flatMap(([, x]) => x))].sort((a, b) => a - b);
    const at = columns.map(([, x, y]) => new Map(x.map((step, i) => [step, y[i]])));
    const rows = steps.map((step) => [step, ...at.map((values) => { const value = values.get(step); return value === undefined || value === null ? "" : Number(value.toPrecision(7)); })].join(","));
    return `${[["step", ...columns.map(([name]) => cell(name))].join(","), ...rows].join("\n")}\n`;
  }
  const saveCsv = (name, columns) => download(`${name}.csv`, new Blob([csv(columns)], { type: "text/csv" }));

  // The drawing as a picture, with its title and what each line is above it, in as many rows as they need.
  async function picture(svg, title, legend) {
    const SVG = "http://www.w3.org/2000/svg", ROW = 18;
    const make = (tag, attributes) => {
      const node = document.createElementNS(SVG, tag);
      for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
      return node;
    };
    const style = getComputedStyle(svg), page = getComputedStyle(document.body);
    const width = svg.clientWidth;
    const holder = make("svg", { width });
    holder.style.fontFamily = style.fontFamily;
    const ruler = document.createElement("canvas").getContext("2d");
    let x = 6, y = 16;
    const write = (text, fill, weight, line) => {
      ruler.font = `${weight} 12px ${style.fontFamily}`;
      const wide = ruler.measureText(text).width + (line ? 20 : 0);
      if (x > 6 && x + wide > width) [x, y] = [6, y + ROW];
      if (line) holder.append(make("line", { x1: x, x2: x + 16, y1: y - 4, y2: y - 4, stroke: line.stroke, "stroke-width": 2, "stroke-dasharray": line.strokeDasharray }));
      const node = make("text", { x: x + (line ? 20 : 0), y, fill, "font-size": 12, "font-weight": weight });
      node.textContent = text;
      holder.append(node);
      x += wide + 12;
    };
    write(title, page.getPropertyValue("--wb-text").trim() || "#222", 600);
    for (const { label, node } of legend) write(label, page.getPropertyValue("--wb-muted").trim() || "#666", 400, getComputedStyle(node));
    const clone = svg.cloneNode(true);
    const copies = [...clone.querySelectorAll("*")];
    [...svg.querySelectorAll("*")].forEach((node, i) => {
      const from = getComputedStyle(node);
      for (const name of ["stroke", "stroke-width", "stroke-dasharray", "stroke-linecap", "stroke-linejoin", "fill", "opacity", "font-size"]) copies[i].style.setProperty(name, from.getPropertyValue(name));
    });
    clone.setAttribute("y", y + 8);
    holder.append(clone);
    const height = y + 8 + svg.clientHeight;
    holder.setAttribute("height", height);
    holder.setAttribute("viewBox", `0 0 ${width} ${height}`);
    const image = new Image();
    image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(new XMLSerializer().serializeToString(holder))}`;
    await image.decode();
    const canvas = el("canvas", { width: 3 * width, height: 3 * height });
    const context = canvas.getContext("2d");
    context.fillStyle = page.getPropertyValue("--wb-page").trim() || "#fff";
    context.fillRect(0, 0, canvas.width, canvas.height);
    context.drawImage(image, 0, 0, canvas.width, canvas.height);
    return new Promise((resolve, reject) => { canvas.toBlob((blob) => (blob ? resolve(blob) : reject(new Error("the browser gave no picture"))), "image/png"); });
  }

  // ── one chart and its caption ────────────────────────────────────────────────────────────────────────────────

  class Panel {
    constructor(panel, root, owner) {
      this.panel = panel;
      this.lines = [];
      this.values = [];
      this.visible = false;
      this.waiting = false;
      this.figure = el("figure", { class: "curve", "data-panel": panel.key, tabindex: -1, hidden: true }); // an alarm leads here
      this.caption = el("figcaption", { title: panel.about }, el("b", {}, panel.title));
      this.menu = menu(panel.title, {
        onLog: (on) => { this.chart.log = on; this.draw(); },
        png: async () => download(`${this.fileName}.png`, await picture(this.chart.svg, panel.title, this.legend())),
        csv: () => saveCsv(this.fileName, this.filled().map(({ line }) => [line.metric, line.x, line.y])),
      });
      this.caption.append(this.menu.node);
      this.owner = owner;
      // A slider over the logged steps, for the keyboard and whoever hears it.
      this.plot = el("div", { class: "plot holder", role: "slider", tabindex: 0, "aria-label": panel.title, "aria-valuemin": 0,
        onblur: () => owner.point(null),
        onkeydown: (event) => { if (!event.ctrlKey && !event.metaKey && !event.altKey && this.chart.press(event.key)) event.preventDefault(); } });
      this.figure.append(this.caption, this.plot);
      root.append(this.figure);
      this.chart = new globalThis.WorkbenchChart.LineChart(this.plot, this.lines, {
        share: panel.share, onHover: owner.point, onPick: owner.choose, onZoom: owner.zoom,
      });
      Object.assign(this.chart, { range: owner.range, smoothing: owner.smoothing });
      for (const series of panel.series) if (!series.metric.includes(PLACE)) this.newLine(series.metric, series.label);
    }

    // As it was before the first value; lines of rewards, which another run may not have, go.
    clear() {
      const fixed = this.panel.series.filter((series) => !series.metric.includes(PLACE)).length;
      this.lines.length = fixed;
      this.values.splice(fixed).forEach((one) => one.holder.remove());
      this.lines.forEach((line) => Object.assign(line, { x: [], y: [], least: Infinity, average: null }));
      this.figure.hidden = true;
      this.chart.range = this.owner.range;
      this.chart.clear();
    }

    get fileName() { return fileName(this.owner.name, this.panel.key); }

    filled() { return this.lines.map((line, i) => ({ line, i })).filter(({ line }) => line.x.length); }

    legend() { return this.filled().length > 1 ? this.filled().map(({ line, i }) => ({ label: line.label, node: this.chart.nodesOf(i).path })) : []; }

    newLine(metric, label) {
      const value = el("output");
      const named = this.panel.series.length > 1 || this.panel.series[0].metric.includes(PLACE);
      const holder = el("span", { class: `line line-${this.lines.length % globalThis.WorkbenchChart.COLOURS}`, hidden: true }, ...(named ? [`${label} `] : []), value);
      this.caption.insertBefore(holder, this.menu.node);
      this.values.push({ holder, value });
      this.lines.push({ metric, label, x: [], y: [], least: Infinity, average: null });
      return this.lines[this.lines.length - 1];
    }

    // The line that draws a metric, made when a reward's metric is first met; nothing if the panel has none for it.
    lineOf(metric) {
      const known = this.lines.find((line) => line.metric === metric);
      if (known) return known;
      for (const series of this.panel.series) {
        const [before, after] = series.metric.split(PLACE);
        if (after !== undefined && metric.length > before.length + after.length && metric.startsWith(before) && metric.endsWith(after)) return this.newLine(metric, metric.slice(before.length, metric.length - after.length));
      }
      return null;
    }

    // {metric: [steps, values]}; what none of the lines draws is left alone.
    add(columns) {
      let any = false;
      for (const [metric, [steps, values]] of Object.entries(columns)) {
        const line = this.lineOf(metric);
        if (!line) continue;
        any = true;
        const from = line.y.length;
        if (from) {
          line.x.push(...steps);
          line.y.push(...values);
        } else Object.assign(line, { x: steps.slice(), y: values.slice() });
        line.least = least(line.y, from, line.least);
      }
      if (any) this.changed();
    }

    changed() {
      if (this.lines.some((line) => line.x.length)) this.figure.hidden = false;
      this.lines.forEach((line, i) => { this.values[i].holder.hidden = !line.x.length; });
      this.menu.positive(this.chart.positive);
      this.owner.filled(this);
      this.show(this.chart.pointed ?? null);
      this.draw();
    }

    // The values at a step (of the last one without), in the caption; and the crosshair.
    show(step) {
      this.lines.forEach((line, i) => {
        const at = (step === null ? line.x.length : globalThis.WorkbenchChart.lowerBound(line.x, step + 0.5)) - 1;
        const value = at >= 0 ? line.y[at] : null;
        const text = this.panel.share && value !== null ? `${(100 * value).toFixed(value && Math.abs(value) < 0.1 ? 1 : 0)} %` : format(value);
        if (this.values[i].value.textContent !== text) this.values[i].value.textContent = text;
      });
      this.chart.point(step);
      const last = Math.max(0, ...this.lines.map((line) => line.x[line.x.length - 1] ?? 0));
      const said = this.filled().map(({ line, i }) => `${line.label} ${this.values[i].value.textContent}`);
      for (const [name, value] of Object.entries({ valuemax: last, valuenow: step ?? last, valuetext: `step ${step ?? last}: ${said.join(", ")}` })) this.plot.setAttribute(`aria-${name}`, value);
    }

    draw() {
      if (this.waiting || !this.visible || this.figure.hidden) return;
      this.waiting = true;
      later(() => {
        this.waiting = false;
        if (this.figure.isConnected) this.chart.draw(this.width ?? this.plot.clientWidth);
      });
    }
  }

  // ── all of them ──────────────────────────────────────────────────────────────────────────────────────────────

  function mount(root, { panels, onStep = null, onPoint = null, onZoom = null }) {
    let life = 0; // what was to be added before a reset is dropped
    const first = el("div", { class: "curves" });
    const folded = more();
    const above = bar({ onSmooth: (weight) => each((chart) => { chart.chart.smoothing = weight; }), onShowAll: () => owner.zoom(null) });
    root.append(above.node, first, folded.node);

    const ofFigure = (node) => charts.find((one) => one.figure === node || one.plot === node);
    const each = (change) => charts.forEach((chart) => { change(chart); chart.draw(); });
    const seen = new IntersectionObserver((entries) => {
      for (const entry of entries) {
        const chart = ofFigure(entry.target);
        if (!chart) continue;
        chart.visible = entry.isIntersecting;
        chart.draw();
      }
      above.refresh();
    }, { rootMargin: "200px" });
    const sized = new ResizeObserver((entries) => {
      for (const entry of entries) {
        const chart = ofFigure(entry.target);
        if (!chart || !entry.contentRect.width || chart.width === entry.contentRect.width) continue;
        chart.width = entry.contentRect.width;
        chart.draw();
      }
    });

    const owner = {
      name: "",
      range: null,
      get smoothing() { return above.smoothing; },
      point(step) { charts.forEach((chart) => chart.show(step)); onPoint?.(step); },
      choose(step) { onStep?.(step); },
      zoom(range) {
        owner.range = range;
        above.zoomed(range);
        each((chart) => { chart.chart.range = range; });
        onZoom?.(range);
      },
      filled(chart) {
        above.node.hidden = false;
        if (chart.panel.more) folded.node.hidden = false;
      },
    };

    const charts = panels.map((panel) => new Panel(panel, panel.more ? folded.grid : first, owner));
    charts.forEach((chart) => { seen.observe(chart.figure); sized.observe(chart.plot); });

    // Begins anew, for the run called `name`; a zoom is kept only if it is given.
    function reset(name = owner.name, range = null) {
      life++;
      Object.assign(owner, { name, range });
      above.zoomed(range);
      above.node.hidden = folded.node.hidden = true;
      charts.forEach((chart) => chart.clear());
    }

    function add(rows) {
      const columns = {};
      for (const row of rows) {
        for (const [metric, value] of Object.entries(row)) {
          if (typeof value !== "number") continue;
          const [steps, values] = (columns[metric] ??= [[], []]);
          steps.push(row.step);
          values.push(value);
        }
      }
      if (rows.length) charts.forEach((chart) => chart.add(columns));
    }

    // A long log at once: {steps: [numbers, …], values: {metric: [which steps, numbers]}}, numbers being base64 of float32.
    // Settled when all of it is there.
    function addBlock({ steps, values }) {
      const mine = life;
      const decoded = new Map();
      const stepsOf = (which) => decoded.get(which) ?? decoded.set(which, numbers(steps[which])).get(which);
      return Promise.all(Object.entries(values).map(([metric, [which, text]]) => new Promise((resolve) => later(() => {
        if (mine === life) {
          const columns = { [metric]: [stepsOf(which), numbers(text)] };
          charts.forEach((chart) => chart.add(columns));
        }
        resolve();
      }))));
    }

    // Brings the panel that draws a metric into sight; false if none does.
    function lead(metric) {
      const shown = charts.find((one) => !one.figure.hidden && one.lines.some((line) => line.metric === metric && line.x.length));
      if (!shown) return false;
      if (shown.panel.more) folded.node.open = true;
      shown.figure.scrollIntoView({ block: "center", behavior: matchMedia("(prefers-reduced-motion: reduce)").matches ? "auto" : "smooth" });
      shown.figure.focus({ preventScroll: true });
      return true;
    }

    return { reset, add, addBlock, lead, charts, get range() { return owner.range; } };
  }

  globalThis.WorkbenchCurves = { mount, loadPlotly, tools: { bar, menu, more, download, fileName, saveCsv, csv } };
})();
