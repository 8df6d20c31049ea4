// Several runs on the same curves (see overlay.py): a colour is a configuration, a dash a metric of the panel. A
// configuration of more than one run is its mean with a band from the lowest to the highest seed, and each run as a
// thin line where that is asked for. Zooming one chart zooms all.
//
// Charts in sight are brought up to date one after another with a pause between, so that the page never stands still for
// all; the others when they come into sight.
(() => {
  if (globalThis.WorkbenchOverlay) return;

  const COLOURS = 8; // --wo-0 … --wo-7; a ninth configuration begins again
  const DASHES = ["solid", "dash", "dot", "dashdot", "longdash", "longdashdot"];

  const make = (tag, name = "", text = "") => {
    const node = document.createElement(tag);
    node.className = name;
    node.textContent = text;
    return node;
  };

  function mount(root, { plotly }) {
    const { bar, menu, more, fileName, saveCsv } = globalThis.WorkbenchCurves.tools;
    root.classList.add("overlaid");
    const charts = new Map();
    let data = { configurations: [], panels: [] };
    let hidden = new Set(); // names of runs switched off
    let eachRun = false;
    let range = null; // of steps, of all charts
    let round = 0;
    const first = make("div", "curves");
    const folded = more();
    const above = bar({ onSmooth: () => redraw(), onShowAll: () => zoom(null) });
    root.append(above.node, first, folded.node);

    const seen = new IntersectionObserver((entries) => {
      for (const { target, isIntersecting } of entries) {
        const one = [...charts.values()].find((chart) => chart.figure === target);
        if (one) one.visible = isIntersecting;
      }
      above.refresh();
      bring().catch(tell);
    }, { rootMargin: "200px" });

    const colour = (number) => getComputedStyle(root).getPropertyValue(`--wo-${number % COLOURS}`).trim() || "#666";
    const colourOf = (configuration) => colour(data.configurations[configuration].colour ?? configuration);
    const tell = (error) => console.warn("overlay", error);

    function zoom(wanted) {
      range = wanted;
      above.zoomed(range);
      return redraw();
    }

    function chart(panel) {
      if (charts.has(panel.key)) return charts.get(panel.key);
      const figure = make("figure", "curve");
      const caption = make("figcaption");
      const plot = make("div", "plot");
      const one = { figure, plot, caption, plotted: false, visible: false, stale: true, log: false, pointed: null };
      caption.title = panel.about;
      listenToKeys(panel.key, one);
      one.menu = menu(panel.title, {
        onLog: (on) => { one.log = on; one.stale = true; bring().catch(tell); },
        png: () => savePicture(current(panel.key), one),
        csv: () => saveCsv(fileName("runs", panel.key), columns(current(panel.key))),
      });
      figure.dataset.panel = panel.key;
      const holder = make("div", "holder");
      holder.append(plot);
      figure.append(caption, holder);
      charts.set(panel.key, one);
      seen.observe(figure);
      return one;
    }

    const current = (key) => data.panels.find((panel) => panel.key === key);

    function fillCaption(panel, one) {
      const key = JSON.stringify([panel.title, panel.series]);
      if (one.captioned === key) return;
      one.captioned = key;
      const dashes = panel.series.length > 1 ? panel.series.map((label, i) => make("span", `dashed dash-${i % DASHES.length}`, label)) : [];
      one.caption.replaceChildren(make("b", "", panel.title), ...dashes, one.menu.node);
    }

    const nameOf = (panel, line) => `${data.configurations[line.configuration].label}${panel.series.length > 1 ? `, ${panel.series[line.series]}` : ""}`;

    function traces(panel) {
      const found = [];
      // With smoothing, the values stay faint behind their moving average.
      const add = (x, y, name, stroke, more) => {
        const trace = { x, y, name, type: "scatter", mode: x.length < 3 ? "lines+markers" : "lines", line: stroke, marker: { size: 4 }, ...more };
        if (!above.smoothing) { found.push(trace); return; }
        found.push({ ...trace, name: undefined, opacity: 0.3, line: { ...stroke, width: 1 }, hoverinfo: "skip" });
        found.push({ ...trace, y: globalThis.WorkbenchChart.averaged(y, above.smoothing).values });
      };
      for (const line of panel.lines) {
        const shade = colourOf(line.configuration);
        const name = nameOf(panel, line);
        const shown = line.runs.filter((run) => !hidden.has(run.name));
        if (!shown.length) continue;
        const several = line.runs.length > 1;
        const stroke = { color: shade, dash: DASHES[line.series % DASHES.length], shape: "linear" };
        if (several && shown.length === line.runs.length) {
          // Only a panel's first metric has a band: three of them over each other show nothing.
          if (line.series === panel.lines[0].series) {
            found.push({ x: line.x, y: line.low, type: "scatter", mode: "lines", line: { width: 0 }, hoverinfo: "skip" });
            found.push({ x: line.x, y: line.high, type: "scatter", mode: "lines", line: { width: 0 }, fill: "tonexty", fillcolor: `${shade}2e`, hoverinfo: "skip" });
          }
          if (eachRun) for (const run of shown) found.push({ x: run.x, y: run.y, name: run.name, type: "scatter", mode: "lines", opacity: 0.55, line: { ...stroke, width: 0.8 }, hoverinfo: "skip" });
          add(line.x, line.mean, `${name}, mean`, { ...stroke, width: 2 });
        } else {
          // With a seed switched off, a mean of all would mislead: the ones that are left are drawn as they are.
          for (const run of shown) add(run.x, run.y, several ? run.name : name, { ...stroke, width: 1.6 });
        }
      }
      return found;
    }

    function layout(panel, one) {
      const style = getComputedStyle(root);
      const muted = style.getPropertyValue("--wc-muted").trim();
      const grid = style.getPropertyValue("--wc-grid").trim();
      const axis = { gridcolor: grid, zeroline: false, linecolor: grid, ticks: "", automargin: false };
      const log = one.log && !one.menu.node.querySelector("input").disabled;
      const share = panel.share && !log ? { rangemode: "tozero", autorangeoptions: { include: [0, 0.05] } } : {};
      return {
        height: 190, margin: { l: 44, r: 10, t: 6, b: 20 }, uirevision: `${range} ${log}`, hovermode: "x unified", dragmode: "zoom", showlegend: false,
        paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", font: { family: style.fontFamily, size: 10.5, color: muted },
        hoverlabel: { bgcolor: style.getPropertyValue("--wb-page").trim(), bordercolor: grid, font: { size: 11, color: style.getPropertyValue("--wb-text").trim() } },
        xaxis: { ...axis, nticks: 6, ...(range ? { range: [...range] } : { autorange: true, autorangeoptions: { include: [0, 5] } }), showgrid: false, tickformat: "d" },
        yaxis: { ...axis, fixedrange: true, type: log ? "log" : "linear", nticks: 5, hoverformat: panel.share ? ".1%" : ".4g", tickformat: log ? (panel.share ? ".2~p" : ".3~g") : panel.share ? ".0%" : "", ...share, exponentformat: "e" },
      };
    }

    function redraw() {
      charts.forEach((one) => { one.stale = true; });
      return bring();
    }

    // Draws what is out of date and in sight.
    async function bring() {
      const mine = ++round;
      if (!data.panels.some((panel) => charts.get(panel.key)?.stale && charts.get(panel.key).visible)) return;
      await globalThis.WorkbenchCurves.loadPlotly(plotly);
      for (const panel of data.panels) {
        const one = charts.get(panel.key);
        if (!one?.stale || !one.visible) continue;
        await new Promise((resolve) => setTimeout(resolve));
        if (mine !== round || !root.isConnected) return;
        one.stale = false;
        const drawn = traces(panel);
        await Plotly.react(one.plot, drawn, layout(panel, one), { displayModeBar: false, responsive: true, doubleClick: false });
        if (!one.plotted) listen(one.plot);
        one.plotted = true;
        say(one);
      }
    }

    // A slider over the logged steps, for the keyboard and whoever hears it.
    function listenToKeys(key, one) {
      one.plot.setAttribute("role", "slider");
      one.plot.tabIndex = 0;
      one.plot.addEventListener("blur", () => point(one, null));
      one.plot.addEventListener("keydown", (event) => {
        if (!one.plotted || event.ctrlKey || event.metaKey || event.altKey) return;
        const { lines } = current(key);
        const chart = { lines, range, pointed: one.pointed, onHover: (step) => point(one, step), onPick() {}, onZoom: (wanted) => { zoom(wanted).catch(tell); } };
        if (globalThis.WorkbenchChart.press(event.key, chart)) event.preventDefault();
      });
    }

    function point(one, step) {
      one.pointed = step;
      if (!one.plotted) return;
      if (step === null) Plotly.Fx.unhover(one.plot);
      else Plotly.Fx.hover(one.plot, { xval: step }, "xy");
      say(one);
    }

    // The step that the crosshair is at, or the last, and the named lines' values there.
    function say({ figure, plot, pointed }) {
      const named = plot.data.filter((trace) => trace.name);
      const last = Math.max(0, ...named.map((trace) => trace.x[trace.x.length - 1] ?? 0));
      const values = named.map((trace) => {
        const value = trace.y[trace.x.indexOf(pointed ?? last)];
        return value === undefined ? trace.name : `${trace.name} ${Number(value.toPrecision(4))}`;
      });
      const told = { label: current(figure.dataset.panel).title, valuemin: 0, valuemax: last, valuenow: pointed ?? last, valuetext: `step ${pointed ?? last}: ${values.join("; ") || "nothing is switched on"}` };
      for (const [name, value] of Object.entries(told)) plot.setAttribute(`aria-${name}`, value);
    }

    function listen(plot) {
      plot.on("plotly_relayout", (change) => {
        const ends = [change["xaxis.range[0]"], change["xaxis.range[1]"]];
        if (ends.every((end) => typeof end === "number")) zoom(ends).catch(tell);
      });
      plot.on("plotly_doubleclick", () => { zoom(null).catch(tell); });
    }

    // ── files ────────────────────────────────────────────────────────────────────────────────────────────────

    function savePicture(panel, one) {
      const style = getComputedStyle(root);
      const text = style.getPropertyValue("--wb-text").trim();
      const drawn = traces(panel).map((trace) => ({ ...trace, showlegend: Boolean(trace.name) }));
      const figure = {
        ...layout(panel, one), title: { text: panel.title, x: 0.02, xanchor: "left", font: { size: 14, color: text } }, margin: { l: 56, r: 16, t: 40, b: 40 },
        showlegend: true, legend: { orientation: "h", y: -0.14 }, paper_bgcolor: style.getPropertyValue("--wb-page").trim(), font: { size: 12, color: text },
      };
      return Plotly.downloadImage({ data: drawn, layout: { ...figure, height: 420, width: 720 } }, { format: "png", width: 720, height: 420, scale: 2, filename: fileName("runs", panel.key) });
    }

    // What is drawn and switched on: the mean, lowest and highest seed of a configuration, and each run.
    function columns(panel) {
      return panel.lines.flatMap((line) => {
        const name = nameOf(panel, line), several = line.runs.length > 1;
        const shown = line.runs.filter((run) => !hidden.has(run.name));
        const band = several && shown.length === line.runs.length ? [["mean", line.mean], ["lowest", line.low], ["highest", line.high]] : [];
        return [...band.map(([what, values]) => [`${name}, ${what}`, line.x, values]), ...shown.map((run) => [several || panel.series.length > 1 ? `${name}, ${run.name}` : run.name, run.x, run.y])];
      });
    }

    function draw(fresh) {
      data = fresh;
      const there = new Set(data.panels.map((panel) => panel.key));
      for (const [key, one] of charts) {
        if (there.has(key)) continue;
        if (one.plotted) Plotly.purge(one.plot);
        seen.unobserve(one.figure);
        one.figure.remove();
        charts.delete(key);
      }
      for (const panel of data.panels) {
        const one = chart(panel);
        fillCaption(panel, one);
        one.menu.positive(panel.lines.every((line) => [line.mean, line.low ?? []].every((values) => values.every((value) => value > 0))));
        if (!one.figure.isConnected) (panel.more ? folded.grid : first).append(one.figure);
      }
      above.node.hidden = !data.panels.length;
      folded.node.hidden = !data.panels.some((panel) => panel.more);
      return redraw();
    }

    new MutationObserver(() => { if (data.panels.length) redraw().catch(tell); })
      .observe(document.body, { attributes: true, attributeFilter: ["class"] });

    return {
      draw,
      show({ off, each }) { hidden = off; eachRun = each; return redraw(); },
      traces: (key) => traces(current(key)),
    };
  }

  globalThis.WorkbenchOverlay = { mount, COLOURS };
})();
