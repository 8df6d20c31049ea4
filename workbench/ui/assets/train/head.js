// What stands above and below a run's curves: its state, progress, messages, settings and log.

/** @import { ListedRun, News } from "../../../views/payloads.d.ts" */
/** @import { Attributes, Child } from "../../../views/dom.js" */
/**
 * @typedef {Object} HeadActions What the buttons do.
 * @property {(name: string) => void} open
 * @property {() => void} stop
 * @property {() => void} resume
 * @property {() => void} use
 * @property {() => void} inspect
 * @property {() => void} settle takes its settings over
 * @property {() => void} startNow
 * @property {() => void} showRuns
 * @property {(metrics: string[]) => void} lead
 * @property {(kind: string) => void} problems shows those that became right, or wrong
 */

import { el, once, say, setText } from "../../../views/dom.js";
import { sentence } from "../../../views/drawing/said.js";
import { ADVICE, progressText, stateOf } from "./state.js";

export const INSPECT_TITLE = "Sample from its newest checkpoint on Inspect";
export const SETTLE_TITLE = "Put its configuration into the form of a new run; can be undone";

/** @param {string | null} id @param {string} text @param {() => void} onclick @param {Attributes} [more] */
const button = (id, text, onclick, more = {}) => el("button", { type: "button", id, onclick, ...more }, text);

/** @param {string} id @param {string} label */
const notes = (id, label) =>
  el("ul", { id, class: "run-notes", "aria-live": "polite", "aria-label": label, hidden: true });

export class RunHead {
  /** @param {HeadActions} on */
  constructor(on) {
    this.on = on;
    /** @type {HTMLSelectElement} */
    this.picker = el("select", { id: "run-picker", "aria-label": "Run", onchange: () => on.open(this.picker.value) });
    this.badge = el("span", { id: "run-state", class: "badge", role: "status" });
    this.progress = el("span", { class: "progress-text" });
    this.done = el("div");
    const bar = { class: "progress", role: "progressbar", "aria-label": "Training progress", "aria-valuemin": 0 };
    this.bar = el("div", bar, this.done);
    this.stop = button("stop", "Stop", on.stop);
    this.resume = button("resume", "Resume", on.resume, {
      hidden: true,
      title: "Go on from the newest valid checkpoint",
    });
    this.use = button("use-as-reward", "Use as a reward on Inspect", on.use, { hidden: true });
    this.inspect = button("inspect-policy", "Inspect this policy", on.inspect, { hidden: true, title: INSPECT_TITLE });
    this.settle = button("use-settings", "Use these settings", on.settle, { hidden: true, title: SETTLE_TITLE });
    this.now = button("start-now", "Start anyway", on.startNow, {
      hidden: true,
      title: "Train beside the run that has the device, without waiting for it",
    });
    /** @type {HTMLButtonElement} */
    this.ahead = button("run-ahead", "", () => on.open(this.ahead.textContent ?? ""), { class: "link", hidden: true });
    this.unknown = el(
      "p",
      { id: "run-unknown", class: "about", hidden: true },
      button("run-others", "See the runs there are", on.showRuns, { class: "link" }),
    );
    this.warnings = notes("run-warnings", "Warnings");
    this.alarms = notes("run-alarms", "Checks");
    this.message = el("p", { id: "run-message", role: "status", tabindex: -1 });
    this.said = el("div", { class: "sentences", role: "status" });
    this.reason = el("p", { id: "run-reason", role: "alert", hidden: true });
    this.settings = el("dl", { class: "facts" });
    this.settingsBox = el("details", { class: "settings" }, el("summary", {}, "Settings"), this.settings);
    this.log = el("pre", { id: "run-log", tabindex: 0, "aria-label": "Log" });
    this.logBox = el("details", { class: "log", open: true }, el("summary", {}, "Log"), this.log);
    const row = el(
      "header",
      { class: "run-head" },
      el("label", {}, "Run ", this.picker),
      this.badge,
      this.progress,
      this.ahead,
      el("span", { class: "run-actions" }, this.inspect, this.use, this.settle, this.now, this.resume, this.stop),
    );
    this.above = [
      row,
      this.bar,
      el("div", { id: "run-said", class: "wh" }, this.said),
      this.reason,
      this.unknown,
      this.message,
      this.warnings,
      this.settingsBox,
      this.alarms,
    ];
  }

  /** As it is before anything is known of a run: what stood there is about another one. */
  clear() {
    this.state("");
    setText(this.progress, "");
    this.done.style.width = "0";
    say(this.message, "");
    say(this.reason, "");
    this.stop.hidden =
      this.use.hidden =
      this.inspect.hidden =
      this.settle.hidden =
      this.now.hidden =
      this.resume.hidden =
      this.unknown.hidden =
      this.ahead.hidden =
        true;
    once(this.said, [], () => this.said.replaceChildren());
    this.fill(this.warnings, []);
    this.fill(this.alarms, []);
    this.log.textContent = "";
    this.settings.replaceChildren();
  }

  /** @param {ListedRun[]} runs @param {string | null} current */
  drawPicker(runs, current) {
    if (document.activeElement === this.picker) return;
    const states = new Map(runs.map((run) => [run.name, run.state]));
    const names = current && !states.has(current) ? [current, ...states.keys()] : [...states.keys()];
    const text = (/** @type {string} */ name) => (states.get(name) ? `${name} · ${states.get(name)}` : name);
    this.picker.replaceChildren(
      ...names.map((name) => el("option", { value: name, selected: name === current }, text(name))),
    );
  }

  /** @param {[string, string][]} settings */
  describe(settings) {
    this.settings.replaceChildren(...settings.flatMap(([name, value]) => [el("dt", {}, name), el("dd", {}, value)]));
  }

  /** @param {string} text @param {string} [kind] */
  state(text, kind = text) {
    setText(this.badge, text);
    this.badge.className = `badge ${kind}`;
  }

  lost() {
    this.state("no connection", "lost");
    this.progress.textContent = "trying again; what is drawn stays";
  }

  /** @param {string} error Of a run that there is not, or that cannot be read. */
  fail(error) {
    this.state("unknown", "failed");
    this.progress.textContent = "";
    this.bar.hidden =
      this.stop.hidden =
      this.logBox.hidden =
      this.settingsBox.hidden =
        true;
    this.unknown.hidden = false;
    say(this.reason, error);
  }

  /** @param {News} news */
  show(news) {
    this.state(stateOf(news));
    this.badge.title = news.reason;
    setText(this.progress, progressText(news, Date.now() / 1000));
    this.done.style.width = `${news.total ? Math.min(100, (100 * news.step) / news.total) : 0}%`;
    this.bar.setAttribute("aria-valuemax", `${news.total}`);
    this.bar.setAttribute("aria-valuenow", `${news.step}`);
    this.bar.classList.toggle("waiting", !news.final && news.state !== "running");
    this.bar.hidden = this.settingsBox.hidden = false;
    this.stop.hidden = news.final;
    this.stop.disabled = news.stopping;
    this.resume.hidden = !news.resumable;
    this.unknown.hidden = true;
    const waits = news.state === "queued" && !news.started;
    this.use.hidden = news.gives !== "reward model";
    this.inspect.hidden = !news.policies.length;
    this.settle.hidden = !news.final;
    this.now.hidden = !waits || news.stopping || !news.reason;
    this.ahead.hidden = !(waits && news.behind);
    setText(this.ahead, news.behind ?? "");
    const follow = (/** @type {string} */ target) => () => this.on.problems(target.replace("problems:", ""));
    once(this.said, news.said, () => {
      this.said.replaceChildren(...news.said.map((parts) => el("p", {}, ...sentence(parts, follow))));
    });
    this.fill(this.warnings, news.warnings);
    this.fill(
      this.alarms,
      news.alarms.map((alarm) => alarm.text),
      (text, i) =>
        button(null, text, () => this.on.lead(news.alarms[i].metrics), { class: "link", title: "Show the curve" }),
    );
    const advice = news.state in ADVICE ? [news.reason, ADVICE[news.state]] : [];
    say(this.reason, advice.filter(Boolean).join("\n"));
    const lines = news.log.join("\n");
    setText(this.log, lines);
    this.logBox.hidden = !lines;
  }

  /** @param {HTMLElement} node @param {string[]} texts @param {(text: string, i: number) => Child} [child] of an item */
  fill(node, texts, child = (text) => text) {
    node.hidden = !texts.length;
    once(node, texts, () => node.replaceChildren(...texts.map((text, i) => el("li", {}, child(text, i)))));
  }
}
