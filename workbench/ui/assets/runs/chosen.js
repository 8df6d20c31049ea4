// The chosen runs together: their curves, which can be switched off one by one, and what sets them apart.

/** @import { Configuration, Overlay } from "../../../views/payloads.d.ts" */
/** @import { Range } from "../../../views/curves.js" */
/** @import { Child } from "../../../views/dom.js" */
/** @import { Heatmap } from "../../../views/drawing/heatmap.js" */
/** @import { RunsServer } from "../../../views/payloads.d.ts" */
/** @typedef {Configuration & { colour: number }} Coloured */

import { mount as mountCurves } from "../../../views/curves.js";
import { el, once, say, tableOf } from "../../../views/dom.js";
import { mount } from "../../../views/drawing/heatmap.js";
import { answerOf } from "../widget.js";
import { giveColours, NONE, paint, plural } from "./table.js";

const HEIGHT = 190;
/** @type {Record<string, string>} */
const AXES = { step: "steps", seconds: "time, s", completions: "completions sampled" };
const ALONE = "Choose a second run to see in which settings they differ.";
const EQUAL = "The chosen runs have the same settings, the seed included.";
const EMPTY = "None of the chosen runs has logged a row yet; curves appear with the first step.";

/** @type {Overlay} */
const NOTHING = {
  axis: "step",
  axes: [],
  configurations: [],
  panels: [],
  differences: [],
  order: [],
  missing: [],
  dropped: 0,
};

export class ChosenRuns {
  /**
   * @param {{
   *   range: Range | null,
   *   onZoom: () => void,
   *   onAxis: (axis: string) => void,
   *   onChange: () => void,
   *   csv: (key: string) => Promise<string | undefined>,
   *   server: RunsServer,
   * }} options what the curves are zoomed to, and what is to be asked for anew
   */
  constructor({ range, onZoom, onAxis, onChange, csv, server }) {
    this.onChange = onChange;
    this.sides = new Sides(server);
    /** @type {HTMLSelectElement} */
    this.axis = el("select", { id: "runs-axis", onchange: () => onAxis(this.axis.value) });
    this.answer = NOTHING;
    /** @type {string | null} the answer that is drawn */
    this.drawn = null;
    /** @type {Coloured[]} */
    this.configurations = [];
    /** @type {Set<string>} runs that are switched off */
    this.off = new Set();
    /** @type {Map<string, number>} by configuration */
    this.colours = new Map();
    /** @type {Map<string, number>} by run */
    this.colourOf = new Map();
    this.each = el("input", { type: "checkbox", id: "runs-each", onchange: onChange });
    this.ofSeeds = el(
      "span",
      {},
      el("label", { class: "each" }, this.each, " each seed"),
      " ",
      el(
        "span",
        { class: "muted" },
        "line: mean of the seeds that got so far (jumps where one ends) · band: lowest to highest",
      ),
    );
    this.legend = el("ul", { class: "legend", id: "runs-legend", "aria-label": "Configurations" });
    this.missing = el("ul", { class: "missing", role: "alert", hidden: true });
    this.empty = el("p", { class: "muted", hidden: true }, EMPTY);
    const charts = el("div", { id: "runs-curves", class: "overlaid" });
    this.curves = mountCurves(charts, { height: HEIGHT, range, onZoom, onSmooth: onChange, csv });
    this.curves.name = "runs";
    this.differences = el("div", {
      class: "scroller",
      tabindex: 0,
      role: "region",
      "aria-label": "Differences",
      id: "runs-diff",
    });
    const over = el("label", { class: "each" }, "over ", this.axis);
    const head = el("div", { class: "together-head" }, el("h2", {}, "Chosen runs"), over, this.ofSeeds);
    this.node = el(
      "section",
      { "aria-label": "Chosen runs", id: "runs-together", hidden: true },
      head,
      this.legend,
      this.missing,
      this.empty,
      charts,
      this.sides.node,
      el("h2", {}, "Differences"),
      this.differences,
    );
  }

  /** @param {Set<string>} names of the chosen runs; only these may be switched off */
  choose(names) {
    for (const name of [...this.off]) if (!names.has(name)) this.off.delete(name);
    this.node.hidden = !names.size;
    this.sides.choose([...names]);
  }

  /** @param {Overlay} answer Draws an answer of the server; false if it is what is drawn already. */
  draw(answer) {
    const drawn = JSON.stringify(answer);
    if (drawn === this.drawn) return false;
    this.drawn = drawn;
    this.answer = answer;
    const { missing, dropped, axis, axes } = answer;
    once(this.axis, axes, () => {
      this.axis.replaceChildren(...axes.map((name) => el("option", { value: name }, AXES[name] ?? name)));
    });
    this.axis.value = axis;
    giveColours(this.colours, answer.configurations.map(({ key }) => key));
    const configurations = answer.configurations.map((each) => ({ ...each, colour: this.colours.get(each.key) ?? 0 }));
    this.configurations = configurations;
    this.ofSeeds.hidden = !configurations.some(({ runs }) => runs.length > 1);
    const faults = [
      ...missing.map(({ error }) => error),
      ...(dropped ? [`${plural(dropped, "run")} more chosen than are shown together.`] : []),
    ];
    this.missing.replaceChildren(...faults.map((fault) => el("li", {}, fault)));
    this.missing.hidden = !faults.length;
    this.empty.hidden = answer.panels.length > 0 || !configurations.length;
    this.colourOf = new Map(configurations.flatMap(({ runs, colour }) => runs.map(({ name }) => [name, colour])));
    once(
      this.legend,
      configurations,
      () => this.legend.replaceChildren(...configurations.map((configuration) => this.item(configuration))),
    );
    this.differences.replaceChildren(this.differenceTable());
    const coloured = answer.panels.map((panel) => ({
      ...panel,
      traces: panel.traces.map((trace) => ({ ...trace, colour: configurations[trace.colour].colour })),
    }));
    this.curves.show(coloured);
    return true;
  }

  /** What is to be drawn of the chosen runs. */
  get shown() {
    return { off: [...this.off], each: this.each.checked, smoothing: this.curves.smoothing };
  }

  /** @param {Coloured} configuration It and its runs as buttons that switch them off and on. */
  item({ label, runs, colour }) {
    const names = runs.map(({ name }) => name);
    /** @type {{ node: HTMLElement, of: string[] }[]} */
    const buttons = [];
    const press = () =>
      buttons.forEach(({ node, of }) =>
        node.setAttribute("aria-pressed", String(of.some((name) => !this.off.has(name))))
      );
    /** @type {(kind: string, of: string[], title: string | null, ...children: Child[]) => HTMLElement} */
    const toggle = (kind, of, title, ...children) => {
      const flip = () => {
        const on = of.some((name) => !this.off.has(name));
        for (const name of of) this.off[on ? "add" : "delete"](name);
        press();
        this.onChange();
      };
      const node = el("button", { type: "button", class: kind, title, onclick: flip }, ...children);
      buttons.push({ node, of });
      return node;
    };
    const several = names.length > 1;
    const seeds = el("span", { class: "muted" }, several ? `${names.length} seeds` : "");
    const whole = toggle("configuration", names, null, paint(el("i"), colour), label, " ", seeds);
    const single = runs.map(({ name, seed }) => toggle("seed", [name], name, several ? `seed ${seed}` : name));
    press();
    return el("li", {}, whole, ...single);
  }

  differenceTable() {
    const { configurations, differences, order } = this.answer;
    const alone = configurations.flatMap(({ runs }) => runs).length < 2;
    if (alone || !differences.length) return el("p", { class: "muted" }, alone ? ALONE : EQUAL);
    const heads = order.map((name) => el("th", { scope: "col" }, paint(el("i"), this.colourOf.get(name)), name));
    const cell = (/** @type {string} */ value) =>
      el("td", { class: value === NONE ? "muted" : null, title: value }, value);
    return tableOf({}, ["setting", ...heads], differences.map(({ field, values }) => [field, ...values.map(cell)]));
  }
}

/** Two chosen runs' newest answers to a prompt that both watch: two heatmaps side by side. */
class Sides {
  /** @param {RunsServer} server */
  constructor(server) {
    this.server = server;
    /** @type {string[]} */
    this.runs = [];
    this.index = 0;
    this.prompt = el("b");
    this.where = el("span", { class: "muted" });
    this.problem = el("p", { class: "muted", role: "status", hidden: true });
    const turn = (/** @type {string} */ label, /** @type {number} */ by, /** @type {string} */ text) =>
      el("button", { type: "button", "aria-label": label, onclick: () => this.ask(this.index + by) }, text);
    this.head = el(
      "p",
      {},
      turn("Previous prompt", -1, "‹"),
      turn("Next prompt", 1, "›"),
      " ",
      this.prompt,
      this.where,
    );
    this.titles = [el("h3"), el("h3")];
    this.holders = [el("div"), el("div")];
    const panes = this.titles.map((title, i) => el("div", {}, title, this.holders[i]));
    const body = el("div", {}, this.head, this.problem, el("div", { class: "sides" }, ...panes));
    const opened = () => this.node.open && !this.maps.length && this.ask(0);
    this.node = el(
      "details",
      { id: "runs-sides", hidden: true, ontoggle: opened },
      el("summary", {}, "Answers to the same prompt, side by side"),
      body,
    );
    /** @type {Heatmap[]} */
    this.maps = [];
  }

  /** @param {string[]} runs those that are chosen; only two have sides */
  choose(runs) {
    this.node.hidden = runs.length !== 2;
    if (runs.join() === this.runs.join()) return;
    this.runs = runs;
    this.maps = [];
    for (const holder of this.holders) holder.replaceChildren();
    if (this.node.open && runs.length === 2) this.ask(0);
  }

  /** @param {number} index of the prompt; behind the last comes the first */
  async ask(index) {
    const { runs } = this;
    const answer = await answerOf(this.server.side_by_side({ runs, index })).catch(() => null);
    if (runs !== this.runs) return; // others are chosen by now
    say(this.problem, answer ? answer.error : "The workbench did not answer; try again.");
    this.head.hidden = !answer || answer.error !== "";
    if (!answer || answer.error) return;
    this.index = answer.index;
    this.maps = this.maps.length ? this.maps : this.holders.map((holder) => mount(holder));
    answer.drawings.forEach((drawing, i) => {
      this.maps[i].draw(drawing);
      this.titles[i].textContent = `${runs[i]}, step ${answer.steps[i]}`;
    });
    this.prompt.textContent = this.maps[0].data.prompt.trim();
    this.where.textContent = `  ${answer.index + 1} of ${answer.count}`;
  }
}
