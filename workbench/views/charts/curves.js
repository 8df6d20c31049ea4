// Charts beside each other: small multiples of one run that grow while it goes on, of several runs, or of anything stored.
//
// Rows are added as they arrive; a zoom stays where it is. Zooming one chart zooms all of the same x axis; pointing at a
// step shows every chart's values there. What is to be done for the charts, taking in a long log or drawing, is done a
// few milliseconds a turn; a chart out of sight is drawn when it comes into sight. Smoothing draws every line as its
// moving average with the values faint behind it; the numbers that are read stay the logged ones.

/** @import { Block, Panel } from "./payload.js" */
/** @import { Range } from "./scale.js" */
/**
 * @typedef {Object} Options
 * @property {number} [height] of each chart
 * @property {boolean} [readout] whether values are read beside the crosshair, as many lines need it, and not in captions
 * @property {string} [name] begins the names of files
 * @property {Range | null} [range] what is zoomed to
 * @property {(step: number) => void} [onStep] called when a point is picked
 * @property {(x: number | null) => void} [onPoint] called when one is pointed at
 * @property {(range: Range | null) => void} [onZoom]
 */

import { el } from "../dom.js";
import { bar, fold } from "./controls.js";
import { columnsOf, numbers } from "./data.js";
import { HEIGHT } from "./chart.js";
import { Figure } from "./figure.js";
import { later } from "./work.js";

/** @param {HTMLElement} root @param {Options} [options] */
export const mount = (root, options) => new Curves(root, options);

export class Curves {
  /** @param {HTMLElement} root @param {Options} [options] */
  constructor(root, { height = HEIGHT, readout = false, name = "", range = null, onStep, onPoint, onZoom } = {}) {
    this.height = height;
    this.readout = readout;
    this.name = name;
    this.range = range;
    this.x = "step"; // the axis that the range is of
    this.onStep = onStep;
    this.onPoint = onPoint;
    this.onZoom = onZoom;
    /** @type {Figure | null} */
    this.pointedAt = null;
    /** @type {Figure[]} */
    this.figures = [];
    this.template = ""; // JSON of the panels that grow
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
    this.seen = this.watchSight();
    this.sized = this.watchSize();
  }

  get smoothing() {
    return this.bar.smoothing;
  }

  get isEmpty() {
    return this.figures.every(({ figure }) => figure.hidden);
  }

  watchSight() {
    return new IntersectionObserver((entries) => {
      for (const { target, isIntersecting } of entries) {
        const figure = this.figures.find((candidate) => candidate.figure === target);
        if (!figure) continue;
        figure.visible = isIntersecting;
        figure.draw();
      }
      this.bar.refresh();
    }, { rootMargin: "200px" });
  }

  watchSize() {
    return new ResizeObserver((entries) => {
      for (const { target, contentRect } of entries) {
        const figure = this.figures.find((candidate) => candidate.plot === target);
        if (!figure || !contentRect.width || figure.width === contentRect.width) continue;
        figure.width = contentRect.width;
        figure.draw();
      }
    });
  }

  /** @param {(figure: Figure) => void} change */
  each(change) {
    for (const figure of this.figures) {
      change(figure);
      figure.draw();
    }
  }

  /** Draws every chart at once, those out of sight too, for paper. */
  drawAll() {
    for (const figure of this.figures) figure.drawNow();
  }

  // ── what charts do together ────────────────────────────────────────────────────────────────────────────────

  /** @param {Panel} panel */
  rangeOf(panel) {
    return panel.x === this.x ? this.range : null;
  }

  /** @param {number | null} x @param {Figure} from */
  point(x, from) {
    this.pointedAt = x === null ? null : from;
    for (const figure of this.figures) if (figure.panel.x === from.panel.x && !figure.figure.hidden) figure.show(x);
    this.onPoint?.(x);
  }

  /** @param {number} x */
  pick(x) {
    this.onStep?.(x);
  }

  /** @param {Range | null} range @param {string} [x] */
  zoom(range, x = this.x) {
    this.range = range;
    this.x = x;
    this.bar.zoomed(range, x);
    this.each((figure) => {
      figure.chart.range = this.rangeOf(figure.panel);
    });
    this.onZoom?.(range);
  }

  /** @param {Figure} figure */
  filled(figure) {
    this.bar.node.hidden = false;
    if (figure.panel.more) this.folded.node.hidden = false;
  }

  /** @param {string} metric Brings the figure that draws it into sight; false if none does. */
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

  /** @param {Panel[]} panels Their figures in this order; one that is there already stays in its place in the document. */
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

  /** @param {Panel} panel */
  newFigure(panel) {
    const figure = new Figure(panel, this);
    this.seen.observe(figure.figure);
    this.sized.observe(figure.plot);
    return figure;
  }

  /**
   * Begins anew with panels that are to grow, of the run called `name`; a zoom stays only if it is given.
   * @param {{ name?: string, panels?: Panel[] | null, range?: Range | null }} [anew]
   */
  reset({ name = this.name, panels = null, range = null } = {}) {
    this.life++;
    this.name = name;
    this.range = range;
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

  /** @param {Record<string, unknown>[]} rows of metrics, to be added */
  add(rows) {
    if (!rows.length) return;
    const columns = columnsOf(rows);
    this.figures.forEach((figure) => figure.add(columns));
  }

  /** @param {string[]} metrics whose newest value is no number, which captions then say in place of the last one */
  lose(metrics) {
    this.figures.forEach((figure) => figure.lose(metrics));
  }

  /** @param {Block} block Adds a long log; settled when all of it is there. */
  addBlock({ steps, values }) {
    const { life } = this;
    /** @type {Map<number, number[]>} */
    const decoded = new Map();
    const stepsOf = (/** @type {number} */ which) => {
      const known = decoded.get(which) ?? numbers(steps[which]);
      decoded.set(which, known);
      return known;
    };
    const adding = Object.entries(values).map(([metric, [which, text]]) =>
      new Promise((resolve) =>
        later(() => {
          if (life === this.life) {
            /** @type {Record<string, [number[], number[]]>} */
            const columns = { [metric]: [stepsOf(which), numbers(text)] };
            this.figures.forEach((figure) => figure.add(columns));
          }
          resolve(null);
        })
      )
    );
    return Promise.all(adding);
  }

  /** @param {(Panel & Required<Pick<Panel, "lines">>)[]} panels Draws stored ones in place of those there. */
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
