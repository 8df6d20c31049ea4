// @ts-nocheck: drawing; what is computed is checked in scale.js, data.js, keys.js and overlay.js
// Charts beside each other: small multiples of one run that grow while it goes on, of several runs, or of anything stored.
//
// Rows are added as they arrive; a zoom stays where it is. Zooming one chart zooms all of the same x axis; pointing at a
// step shows every chart's values there. What is to be done for the charts, taking in a long log or drawing, is done a
// few milliseconds a turn; a chart out of sight is drawn when it comes into sight. Smoothing draws every line as its
// moving average with the values faint behind it; the numbers that are read stay the logged ones.

import { el } from "../dom.js";
import { bar, fold } from "./controls.js";
import { columnsOf, numbers } from "./data.js";
import { Figure } from "./figure.js";
import { later } from "./work.js";

// Draws in `root`. With `readout`, values are read beside the crosshair and not in captions, as many lines need it.
export function mount(root, options = {}) {
  return new Curves(root, options);
}

class Curves {
  constructor(root, { height = 132, readout = false, name = "", range = null, onStep, onPoint, onZoom }) {
    Object.assign(this, { root, height, readout, name, range, x: "step", pointedAt: null, onStep, onPoint, onZoom });
    this.figures = [];
    this.life = 0; // what was to be added before a reset is dropped
    this.first = el("div", { class: "curves" });
    this.folded = fold();
    this.bar = bar({
      onSmooth: (weight) =>
        this.each((figure) => {
          figure.chart.smoothing = weight;
        }),
      onShowAll: () => this.zoom(null),
    });
    root.classList.add("wc");
    root.append(this.bar.node, this.first, this.folded.node);
    this.observe();
  }

  get smoothing() {
    return this.bar.smoothing;
  }

  get isEmpty() {
    return this.figures.every(({ figure }) => figure.hidden);
  }

  observe() {
    const figureOf = (node) => this.figures.find(({ figure, plot }) => figure === node || plot === node);
    this.seen = new IntersectionObserver((entries) => {
      for (const { target, isIntersecting } of entries) {
        const figure = figureOf(target);
        if (!figure) continue;
        figure.visible = isIntersecting;
        figure.draw();
      }
      this.bar.refresh();
    }, { rootMargin: "200px" });
    this.sized = new ResizeObserver((entries) => {
      for (const { target, contentRect } of entries) {
        const figure = figureOf(target);
        if (!figure || !contentRect.width || figure.width === contentRect.width) continue;
        figure.width = contentRect.width;
        figure.draw();
      }
    });
  }

  each(change) {
    for (const figure of this.figures) {
      change(figure);
      figure.draw();
    }
  }

  // Draws every chart at once, those out of sight too, for paper.
  drawAll() {
    for (const figure of this.figures) figure.drawNow();
  }

  // ── what charts do together ────────────────────────────────────────────────────────────────────────────────

  rangeOf(panel) {
    return panel.x === this.x ? this.range : null;
  }

  point(x, from) {
    this.pointedAt = x === null ? null : from;
    for (const figure of this.figures) if (figure.panel.x === from.panel.x && !figure.figure.hidden) figure.show(x);
    this.onPoint?.(x);
  }

  pick(x) {
    this.onStep?.(x);
  }

  zoom(range, x = this.x) {
    Object.assign(this, { range, x });
    this.bar.zoomed(range, x);
    this.each((figure) => {
      figure.chart.range = this.rangeOf(figure.panel);
    });
    this.onZoom?.(range);
  }

  filled(figure) {
    this.bar.node.hidden = false;
    if (figure.panel.more) this.folded.node.hidden = false;
  }

  // Brings the figure that draws a metric into sight; false if none does.
  lead(metric) {
    const leading = this.figures.find(({ figure, lines }) =>
      !figure.hidden && lines.some((line) => line.metric === metric && line.x.length)
    );
    if (!leading) return false;
    if (leading.panel.more) this.folded.node.open = true;
    const still = matchMedia("(prefers-reduced-motion: reduce)").matches;
    leading.figure.scrollIntoView({ block: "center", behavior: still ? "auto" : "smooth" });
    leading.figure.focus({ preventScroll: true });
    return true;
  }

  // ── figures ────────────────────────────────────────────────────────────────────────────────────────────────

  // The figures of these panels in this order; one that is there already stays in its place in the document.
  arrange(panels) {
    const before = new Map(this.figures.map((figure) => [figure.panel.key, figure]));
    this.figures = panels.map((panel) => before.get(panel.key) ?? this.newFigure(panel));
    for (const [key, { figure, plot }] of before) {
      if (panels.some((panel) => panel.key === key)) continue;
      this.seen.unobserve(figure);
      this.sized.unobserve(plot);
      figure.remove();
    }
    for (const grid of [this.first, this.folded.grid]) {
      const inside = this.figures.filter(({ panel }) => Boolean(panel.more) === (grid === this.folded.grid));
      inside.forEach(({ figure }, i) => {
        if (grid.children[i] !== figure) grid.insertBefore(figure, grid.children[i] ?? null);
      });
    }
    this.bar.node.hidden = this.folded.node.hidden = true;
    this.bar.zoomed(this.range, panels.some((panel) => panel.x === "step") ? "step" : panels[0]?.x);
  }

  newFigure(panel) {
    const figure = new Figure(panel, this);
    this.seen.observe(figure.figure);
    this.sized.observe(figure.plot);
    return figure;
  }

  // Begins anew with panels that are to grow, of the run called `name`; a zoom stays only if it is given.
  reset({ name = this.name, panels = null, range = null } = {}) {
    this.life++;
    Object.assign(this, { name, range });
    const drawn = JSON.stringify(panels);
    if (panels && drawn !== this.template) {
      this.arrange([]);
      this.template = drawn;
      this.arrange(panels);
    }
    this.bar.zoomed(range, "step");
    this.bar.node.hidden = this.folded.node.hidden = true;
    this.figures.forEach((figure) => figure.clear());
  }

  // Adds metrics rows.
  add(rows) {
    if (!rows.length) return;
    const columns = columnsOf(rows);
    this.figures.forEach((figure) => figure.add(columns));
  }

  // Adds a long log: {steps: [numbers, …], values: {metric: [which steps, numbers]}}, numbers being base64 of float32.
  // Settled when all of it is there.
  addBlock({ steps, values }) {
    const { life } = this;
    const decoded = new Map();
    const stepsOf = (which) => decoded.get(which) ?? decoded.set(which, numbers(steps[which])).get(which);
    const adding = Object.entries(values).map(([metric, [which, text]]) =>
      new Promise((resolve) =>
        later(() => {
          if (life === this.life) {
            this.figures.forEach((figure) => figure.add({ [metric]: [stepsOf(which), numbers(text)] }));
          }
          resolve();
        })
      )
    );
    return Promise.all(adding);
  }

  // Draws stored panels, each with its lines, in place of those there.
  show(panels) {
    const life = ++this.life;
    this.arrange(panels);
    this.figures.forEach((figure, i) =>
      later(() => {
        if (life === this.life) figure.update(panels[i]);
      })
    );
  }
}
