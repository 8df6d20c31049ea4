// Live curves: small multiples, one chart a panel (see PANELS in curves.py).
//
// Rows are added as they arrive; a zoom stays where it is. Zooming one chart zooms all; pointing at a step shows every
// chart's values there. What is to be done for the charts, taking in a long log or drawing, is done a few milliseconds
// a frame, so that the page never stands still for it; a chart out of sight is drawn when it comes into sight.
(() => {
  if (globalThis.WorkbenchCurves) return;

  const BUDGET = 8; // milliseconds of a frame

  // ── work, a little each frame ────────────────────────────────────────────────────────────────────────────────

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
    const bytes = Uint8Array.from(atob(text), (character) => character.charCodeAt(0));
    return new Float32Array(bytes.buffer);
  }

  class Panel {
    constructor(panel, root, owner) {
      this.panel = panel;
      this.lines = panel.series.map(() => ({ x: [], y: [] }));
      this.visible = false;
      this.waiting = false;
      this.figure = document.createElement("figure");
      this.figure.className = "curve";
      this.figure.dataset.panel = panel.key;
      this.figure.tabIndex = -1; // an alarm leads here
      this.figure.hidden = true;
      this.caption = document.createElement("figcaption");
      this.caption.title = panel.about;
      const title = document.createElement("b");
      title.textContent = panel.title;
      this.values = panel.series.map((series, i) => {
        const holder = document.createElement("span");
        holder.className = `line line-${i}`;
        const value = document.createElement("output");
        if (panel.series.length > 1) holder.append(`${series.label} `);
        holder.append(value);
        return { holder, value };
      });
      this.caption.append(title, ...this.values.map((one) => one.holder));
      this.plot = document.createElement("div");
      this.plot.className = "plot holder";
      this.plot.setAttribute("role", "img");
      this.figure.append(this.caption, this.plot);
      root.append(this.figure);
      this.chart = new globalThis.WorkbenchChart.LineChart(this.plot, this.lines, {
        share: panel.share, onHover: owner.point, onPick: owner.choose, onZoom: owner.zoom,
      });
    }

    add(rows) {
      this.panel.series.forEach((series, i) => {
        for (const row of rows) {
          const value = row[series.metric];
          if (typeof value !== "number") continue;
          this.lines[i].x.push(row.step);
          this.lines[i].y.push(value);
        }
      });
      this.changed();
    }

    // The whole of one line at once, before anything else was added to it.
    fill(i, steps, values) {
      Object.assign(this.lines[i], { x: Array.from(steps), y: Array.from(values) });
      this.changed();
    }

    changed() {
      if (this.lines.some((line) => line.x.length)) this.figure.hidden = false;
      this.lines.forEach((line, i) => { this.values[i].holder.hidden = !line.x.length; });
      this.show(null);
      const last = this.lines.map((line, i) => (line.x.length ? `${this.panel.series[i].label} ${this.values[i].value.textContent}` : "")).filter(Boolean);
      this.plot.setAttribute("aria-label", `${this.panel.title}: ${last.join(", ")}`);
      this.draw();
    }

    // The values at a step (of the last one without), in the caption; and the crosshair.
    show(step) {
      this.lines.forEach((line, i) => {
        const at = (step === null ? line.x.length : globalThis.WorkbenchChart.lowerBound(line.x, step + 0.5)) - 1;
        const value = at >= 0 ? line.y[at] : null;
        this.values[i].value.textContent = this.panel.share && value !== null ? `${(100 * value).toFixed(value && Math.abs(value) < 0.1 ? 1 : 0)} %` : format(value);
      });
      this.chart.point(step);
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

  function mount(root, { panels, onStep = null, onPoint = null }) {
    root.classList.add("curves");
    let charts = [];
    let life = 0; // what was to be added before a reset is dropped
    const ofFigure = (node) => charts.find((one) => one.figure === node || one.plot === node);
    const seen = new IntersectionObserver((entries) => {
      for (const entry of entries) {
        const chart = ofFigure(entry.target);
        if (!chart) continue;
        chart.visible = entry.isIntersecting;
        chart.draw();
      }
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
      point(step) { charts.forEach((chart) => chart.show(step)); onPoint?.(step); },
      choose(step) { onStep?.(step); },
      zoom(range) { charts.forEach((chart) => { chart.chart.range = range; chart.draw(); }); },
    };

    function reset() {
      life++;
      charts.forEach((chart) => { seen.unobserve(chart.figure); sized.unobserve(chart.plot); chart.figure.remove(); });
      charts = panels.map((panel) => new Panel(panel, root, owner));
      charts.forEach((chart) => { seen.observe(chart.figure); sized.observe(chart.plot); });
    }

    function add(rows) {
      if (rows.length) charts.forEach((chart) => chart.add(rows));
    }

    // A long log at once: {metric: [steps, values]}, each as base64 of float32. Settled when all of it is there.
    function addBlock(block) {
      const mine = life;
      const wanted = charts.flatMap((chart) => chart.panel.series.map((series, i) => ({ chart, i, columns: block[series.metric] }))).filter((one) => one.columns);
      return Promise.all(wanted.map(({ chart, i, columns }) => new Promise((resolve) => later(() => {
        if (mine === life) chart.fill(i, numbers(columns[0]), numbers(columns[1]));
        resolve();
      }))));
    }

    // Brings the panel that draws a metric into sight; false if none does.
    function lead(metric) {
      const shown = charts.find((one) => !one.figure.hidden && one.panel.series.some((series) => series.metric === metric));
      if (!shown) return false;
      shown.figure.scrollIntoView({ block: "center", behavior: matchMedia("(prefers-reduced-motion: reduce)").matches ? "auto" : "smooth" });
      shown.figure.focus({ preventScroll: true });
      return true;
    }

    reset();
    return { reset, add, addBlock, lead, get charts() { return charts; } };
  }

  globalThis.WorkbenchCurves = { mount, loadPlotly };
})();
