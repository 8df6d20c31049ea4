// Several runs on the same curves (see overlay.py): a colour is a configuration, a dash a metric of the panel. A
// configuration of more than one run is its mean with a band from the lowest to the highest seed, and each run as a
// thin line where that is asked for.
//
// Charts are brought up to date one after another with a pause between, so that the page never stands still for all.
(() => {
  if (globalThis.WorkbenchOverlay) return;

  const COLOURS = 8; // --wo-0 … --wo-7; a ninth configuration begins again
  const DASHES = ["solid", "dash", "dot"];

  const make = (tag, name = "", text = "") => {
    const node = document.createElement(tag);
    node.className = name;
    node.textContent = text;
    return node;
  };

  function mount(root, { plotly }) {
    root.classList.add("curves", "overlaid");
    const charts = new Map();
    let data = { configurations: [], panels: [] };
    let hidden = new Set(); // names of runs switched off
    let eachRun = false;
    let round = 0;

    const colour = (number) => getComputedStyle(root).getPropertyValue(`--wo-${number % COLOURS}`).trim() || "#666";

    function chart(panel) {
      if (charts.has(panel.key)) return charts.get(panel.key);
      const figure = make("figure", "curve");
      const caption = make("figcaption");
      const plot = make("div", "plot");
      plot.setAttribute("role", "img");
      caption.title = panel.about;
      caption.append(make("b", "", panel.title));
      if (panel.series.length > 1) panel.series.forEach((label, i) => caption.append(make("span", `dashed dash-${i}`, label)));
      figure.dataset.panel = panel.key;
      const holder = make("div", "holder");
      holder.append(plot);
      figure.append(caption, holder);
      const one = { figure, plot, plotted: false };
      charts.set(panel.key, one);
      return one;
    }

    function traces(panel) {
      const found = [];
      for (const line of panel.lines) {
        const shade = colour(line.configuration);
        const name = `${data.configurations[line.configuration].label}${panel.series.length > 1 ? `, ${panel.series[line.series]}` : ""}`;
        const shown = line.runs.filter((run) => !hidden.has(run.name));
        if (!shown.length) continue;
        const several = line.runs.length > 1;
        const stroke = { color: shade, dash: DASHES[line.series], shape: "linear" };
        const mode = line.x.length < 3 ? "lines+markers" : "lines";
        if (several && shown.length === line.runs.length) {
          // Only a panel's first metric has a band: three of them over each other show nothing.
          if (line.series === panel.lines[0].series) {
            found.push({ x: line.x, y: line.low, type: "scatter", mode: "lines", line: { width: 0 }, hoverinfo: "skip" });
            found.push({ x: line.x, y: line.high, type: "scatter", mode: "lines", line: { width: 0 }, fill: "tonexty", fillcolor: `${shade}2e`, hoverinfo: "skip" });
          }
          if (eachRun) for (const run of shown) found.push({ x: run.x, y: run.y, name: run.name, type: "scatter", mode: "lines", opacity: 0.55, line: { ...stroke, width: 0.8 }, hoverinfo: "skip" });
          found.push({ x: line.x, y: line.mean, name: `${name}, mean`, type: "scatter", mode, line: { ...stroke, width: 2 }, marker: { size: 4 } });
        } else {
          // With a seed switched off, a mean of all would mislead: the ones that are left are drawn as they are.
          for (const run of shown) found.push({ x: run.x, y: run.y, name: several ? run.name : name, type: "scatter", mode, line: { ...stroke, width: 1.6 }, marker: { size: 4 } });
        }
      }
      return found;
    }

    function layout(panel) {
      const style = getComputedStyle(root);
      const muted = style.getPropertyValue("--wc-muted").trim();
      const grid = style.getPropertyValue("--wc-grid").trim();
      const axis = { gridcolor: grid, zeroline: false, linecolor: grid, ticks: "", automargin: false };
      return {
        height: 190, margin: { l: 44, r: 10, t: 6, b: 20 }, uirevision: "keep", hovermode: "x unified", dragmode: "zoom", showlegend: false,
        paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", font: { family: style.fontFamily, size: 10.5, color: muted },
        hoverlabel: { bgcolor: style.getPropertyValue("--wb-page").trim(), bordercolor: grid, font: { size: 11, color: style.getPropertyValue("--wb-text").trim() } },
        xaxis: { ...axis, nticks: 6, autorangeoptions: { include: [0, 5] }, showgrid: false, tickformat: "d" },
        yaxis: { ...axis, fixedrange: true, nticks: 5, hoverformat: panel.share ? ".1%" : ".4g", tickformat: panel.share ? ".0%" : "", ...(panel.share ? { rangemode: "tozero", autorangeoptions: { include: [0, 0.05] } } : {}), exponentformat: "e" },
      };
    }

    async function redraw() {
      const mine = ++round;
      const there = new Set(data.panels.map((panel) => panel.key));
      for (const [key, one] of charts) {
        if (there.has(key)) continue;
        if (one.plotted) Plotly.purge(one.plot);
        one.figure.remove();
        charts.delete(key);
      }
      root.append(...data.panels.map((panel) => chart(panel).figure).filter((figure) => !figure.isConnected));
      if (!data.panels.length) return;
      await globalThis.WorkbenchCurves.loadPlotly(plotly);
      for (const panel of data.panels) {
        await new Promise((resolve) => setTimeout(resolve));
        if (mine !== round || !root.isConnected) return;
        const one = charts.get(panel.key);
        const drawn = traces(panel);
        await Plotly.react(one.plot, drawn, layout(panel), { displayModeBar: false, responsive: true, doubleClick: "reset" });
        one.plotted = true;
        const named = [...new Set(drawn.filter((trace) => trace.name).map((trace) => trace.name))];
        one.plot.setAttribute("aria-label", `${panel.title}: ${named.join("; ") || "nothing is switched on"}`);
      }
    }

    new MutationObserver(() => { if (data.panels.length) redraw().catch((error) => console.warn("overlay", error)); })
      .observe(document.body, { attributes: true, attributeFilter: ["class"] });

    return {
      draw(fresh) { data = fresh; return redraw(); },
      show({ off, each }) { hidden = off; eachRun = each; return redraw(); },
      traces: (key) => traces(data.panels.find((panel) => panel.key === key)),
    };
  }

  globalThis.WorkbenchOverlay = { mount, COLOURS };
})();
