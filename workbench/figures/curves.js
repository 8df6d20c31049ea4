// Live curves: small multiples drawn with Plotly, one chart a panel (see PANELS in curves.py).
//
// Rows are added as they arrive and drawn by extending the traces, so that a zoom stays where it is. Zooming one chart
// zooms all; pointing at a step shows every chart's values there. A chart out of sight is brought up to date when it
// comes into sight.
(() => {
  if (globalThis.WorkbenchCurves) return;

  const DASHES = ["solid", "dash", "dot"]; // lines differ by more than their colour
  const NAMES = ["--wc-first", "--wc-second", "--wc-third"];

  let drawing = Promise.resolve();
  let loading = null;
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

  class Chart {
    constructor(panel, root, owner) {
      this.panel = panel;
      this.owner = owner;
      this.lines = panel.series.map(() => ({ x: [], y: [], drawn: 0 }));
      this.visible = false;
      this.queued = false;
      this.figure = document.createElement("figure");
      this.figure.className = "curve";
      this.figure.dataset.panel = panel.key;
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
      this.plot.className = "plot";
      this.plot.setAttribute("role", "img");
      this.cross = document.createElement("div");
      this.cross.className = "cross";
      this.cross.hidden = true;
      const holder = document.createElement("div");
      holder.className = "holder";
      holder.append(this.plot, this.cross);
      this.figure.append(this.caption, holder);
      root.append(this.figure);
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
      const some = this.lines.some((line) => line.x.length);
      if (some && this.figure.hidden) this.figure.hidden = false;
      this.lines.forEach((line, i) => { this.values[i].holder.hidden = !line.x.length; });
      this.show(null);
    }

    // The values at a step (of the last one without), in the caption; and the crosshair.
    show(step) {
      this.lines.forEach((line, i) => {
        let at = line.x.length - 1;
        if (step !== null) while (at > 0 && line.x[at] > step) at--;
        const value = at >= 0 && (step === null || line.x[at] <= step) ? line.y[at] : null;
        this.values[i].value.textContent = this.panel.share && value !== null ? `${(100 * value).toFixed(value && Math.abs(value) < 0.1 ? 1 : 0)} %` : format(value);
      });
      const axis = this.plot._fullLayout?.xaxis;
      this.cross.hidden = step === null || !axis;
      if (!this.cross.hidden) this.cross.style.transform = `translateX(${axis._offset + axis.d2p(step)}px)`;
    }

    layout() {
      const style = getComputedStyle(this.figure);
      const muted = style.getPropertyValue("--wc-muted").trim() || "#667";
      const grid = style.getPropertyValue("--wc-grid").trim() || "#8884";
      const axis = { gridcolor: grid, zeroline: false, linecolor: grid, ticks: "", automargin: false, fixedrange: false };
      return {
        height: 132, margin: { l: 44, r: 10, t: 6, b: 20 }, uirevision: "keep", hovermode: "x", dragmode: "zoom", showlegend: false,
        paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
        font: { family: style.fontFamily, size: 10.5, color: muted },
        xaxis: { ...axis, nticks: 6, autorangeoptions: { include: [0, 5] }, showgrid: false, tickformat: "d" },
        yaxis: { ...axis, fixedrange: true, nticks: 5, tickformat: this.panel.share ? ".0%" : "", ...(this.panel.share ? { rangemode: "tozero", autorangeoptions: { include: [0, 0.05] } } : {}), exponentformat: "e" },
      };
    }

    traces() {
      const style = getComputedStyle(this.figure);
      return this.lines.map((line, i) => ({
        x: line.x.slice(), y: line.y.slice(), type: "scatter", hoverinfo: "none",
        // A metric that is measured now and then shows where it was.
        mode: line.x.length < 3 || this.sparse(line) ? "lines+markers" : "lines",
        line: { color: style.getPropertyValue(NAMES[i]).trim(), width: 1.6, dash: DASHES[i] }, marker: { size: 4 },
      }));
    }

    sparse(line) {
      return line.x.length > 1 && (line.x[line.x.length - 1] - line.x[0]) / (line.x.length - 1) >= 2;
    }

    // Charts are drawn one after another with a pause between, so that the page never stands still for all of them.
    draw() {
      if (this.queued || !this.visible || this.figure.hidden || !globalThis.Plotly) return;
      this.queued = true;
      drawing = drawing.then(() => new Promise((resolve) => setTimeout(resolve))).then(() => {
        this.queued = false;
        return this.figure.isConnected ? this.catchUp() : null;
      }).catch((error) => console.warn("curve", error));
    }

    async catchUp() {
      const fresh = this.lines.map((line) => line.x.length - line.drawn);
      if (!this.plotted) {
        await Plotly.newPlot(this.plot, this.traces(), this.layout(), { displayModeBar: false, responsive: true, doubleClick: "reset" });
        this.plotted = true;
        this.listen();
      } else if (fresh.some(Boolean)) {
        const grown = fresh.flatMap((count, i) => (count ? [i] : []));
        await Plotly.extendTraces(this.plot, {
          x: grown.map((i) => this.lines[i].x.slice(this.lines[i].drawn)),
          y: grown.map((i) => this.lines[i].y.slice(this.lines[i].drawn)),
        }, grown);
        if (this.lines.some((line, i) => line.x.length >= 3 && line.drawn < 3 && grown.includes(i))) {
          const modes = this.traces().map((trace) => trace.mode);
          await Plotly.restyle(this.plot, { mode: modes });
        }
      }
      this.lines.forEach((line, i) => { line.drawn += fresh[i]; });
      const last = this.lines.map((line, i) => (line.x.length ? `${this.panel.series[i].label} ${this.values[i].value.textContent}` : "")).filter(Boolean);
      this.plot.setAttribute("aria-label", `${this.panel.title}: ${last.join(", ")}`);
    }

    listen() {
      this.plot.on("plotly_hover", (event) => this.owner.point(event.points[0].x));
      this.plot.on("plotly_unhover", () => this.owner.point(null));
      this.plot.on("plotly_click", (event) => this.owner.choose(event.points[0].x));
      this.plot.on("plotly_relayout", (change) => {
        if (this.following) return;
        if ("xaxis.range[0]" in change) this.owner.zoom(this, [change["xaxis.range[0]"], change["xaxis.range[1]"]]);
        else if (change["xaxis.autorange"]) this.owner.zoom(this, null);
      });
    }

    async follow(range) {
      if (!this.plotted) return;
      this.following = true;
      await Plotly.relayout(this.plot, range ? { "xaxis.range": range, "xaxis.autorange": false } : { "xaxis.autorange": true });
      this.following = false;
    }

    retheme() {
      if (!this.plotted) return;
      const layout = this.layout();
      Plotly.update(this.plot, { "line.color": this.traces().map((trace) => trace.line.color) }, {
        font: layout.font, "xaxis.gridcolor": layout.xaxis.gridcolor, "yaxis.gridcolor": layout.yaxis.gridcolor, "xaxis.linecolor": layout.xaxis.linecolor,
      });
    }

    destroy() {
      if (this.plotted) Plotly.purge(this.plot);
      this.figure.remove();
    }
  }

  function mount(root, { panels, plotly, onStep = null, onPoint = null }) {
    root.classList.add("curves");
    let charts = [];
    const seen = new IntersectionObserver((entries) => {
      for (const entry of entries) {
        const chart = charts.find((one) => one.figure === entry.target);
        if (!chart) continue;
        chart.visible = entry.isIntersecting;
        if (chart.visible) chart.draw();
      }
    }, { rootMargin: "200px" });

    const owner = {
      point(step) { charts.forEach((chart) => chart.show(step)); onPoint?.(step); },
      choose(step) { onStep?.(step); },
      zoom(source, range) { charts.forEach((chart) => chart !== source && chart.follow(range)); },
    };

    function reset() {
      charts.forEach((chart) => { seen.unobserve(chart.figure); chart.destroy(); });
      charts = panels.map((panel) => new Chart(panel, root, owner));
      charts.forEach((chart) => seen.observe(chart.figure));
    }

    function add(rows) {
      if (!rows.length) return;
      charts.forEach((chart) => chart.add(rows));
      loadPlotly(plotly).then(() => charts.forEach((chart) => chart.draw()), (error) => console.warn(error.message));
    }

    const theme = new MutationObserver(() => charts.forEach((chart) => chart.retheme()));
    theme.observe(document.body, { attributes: true, attributeFilter: ["class"] });
    reset();
    return { reset, add, get charts() { return charts; } };
  }

  globalThis.WorkbenchCurves = { mount, loadPlotly };
})();
