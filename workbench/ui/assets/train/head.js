// What stands above and below a run's curves: its state, progress, messages, settings and log.

/** @import { AlarmPayload, Described, ListedRun, News } from "../../../views/payloads.d.ts" */
/** @import { Attributes } from "../../../views/dom.js" */
/** @import { Ways } from "../runs/actions.js" */
/**
 * @typedef {Ways & {
 *   open: (name: string) => void,
 *   stop: () => void,
 *   resume: () => void,
 *   startNow: () => void,
 *   showRuns: () => void,
 *   lead: (metrics: string[]) => void,
 *   problems: (kind: string) => void,
 * }} HeadActions What the buttons do; `lead` shows the curve of one of the metrics, `problems` those that became right, or
 *   wrong.
 */

import { el, once, say, setText } from "../../../views/dom.js";
import { sentence } from "../../../views/drawing/said.js";
import { menu } from "../menu.js";
import { INSPECT_TITLE, ONWARD_TITLE, savedAs, SETTLE_TITLE } from "../runs/actions.js";
import { ADVICE, progressText, stateOf, stopLabel } from "./state.js";

/** @param {string | null} id @param {string} text @param {() => void} onclick @param {Attributes} [more] */
const button = (id, text, onclick, more = {}) => el("button", { type: "button", id, onclick, ...more }, text);

export class RunHead {
  /** @param {HeadActions} on */
  constructor(on) {
    this.on = on;
    /** @type {HTMLSelectElement} */
    this.picker = el("select", { id: "run-picker", "aria-label": "Run", onchange: () => on.open(this.picker.value) });
    this.badge = el("span", { id: "run-state", class: "badge", role: "status", tabindex: -1 });
    this.progress = el("span", { class: "progress-text" });
    this.done = el("div");
    const bar = { class: "progress", role: "progressbar", "aria-label": "Training progress", "aria-valuemin": 0 };
    this.bar = el("div", bar, this.done);
    this.stop = button("stop", "Stop", on.stop);
    this.resume = button("resume", "Resume", on.resume, { title: "Go on from the newest valid checkpoint" });
    /** @type {News | null} */
    this.news = null;
    const name = () => this.news?.name ?? "", newest = () => this.news?.policies[0];
    this.use = button("use-as-reward", "Use as a reward on Inspect", () => on.apply({ reward: name() }));
    this.inspect = button("inspect-policy", "Inspect this policy", () => on.apply({ policy: newest() }), {
      title: INSPECT_TITLE,
    });
    this.settle = button("use-settings", "Use these settings", () => on.apply({ settings: name() }), {
      title: SETTLE_TITLE,
    });
    this.onward = button("continue-training", "Continue training", () => on.apply({ onward: newest() }), {
      title: ONWARD_TITLE,
    });
    this.save = menu("Save", () => this.news ? savedAs(this.news, on) : [], "save-run");
    this.now = button("start-now", "Start anyway", on.startNow, {
      title: "Train beside the run that has the device, without waiting for it",
    });
    /** @type {HTMLButtonElement} */
    this.ahead = button("run-ahead", "", () => on.open(this.news?.behind ?? ""), { class: "link", hidden: true });
    this.unknown = el(
      "p",
      { id: "run-unknown", class: "about", hidden: true },
      button("run-others", "See the runs there are", on.showRuns, { class: "link" }),
    );
    const live = { "aria-live": "polite", hidden: true };
    this.warnings = el("ul", { ...live, id: "run-warnings", class: "run-notes", "aria-label": "Warnings" });
    this.alarms = el("ul", { ...live, id: "run-alarms", class: "run-alarms", "aria-label": "Checks" });
    this.message = el("p", { id: "run-message", role: "status", tabindex: -1 });
    this.said = el("div", { class: "sentences", role: "status" });
    this.reason = el("p", { id: "run-reason", role: "alert", hidden: true });
    this.settings = el("dl", { class: "facts" });
    this.yaml = el("pre", { tabindex: 0, role: "region", "aria-label": "run.yaml" });
    this.settingsBox = el(
      "details",
      { class: "settings", id: "run-settings" },
      el("summary", {}, "Settings of this run"),
    );
    this.settingsBox.append(this.settings, el("details", {}, el("summary", {}, "All of them, as YAML"), this.yaml));
    const toSettings = () => {
      this.settingsBox.open = true;
      this.settingsBox.scrollIntoView({ block: "center" });
    };
    this.about = button("run-about", "", toSettings, { class: "link", title: "Settings of this run" });
    this.log = el("pre", { id: "run-log", tabindex: 0, "aria-label": "Log" });
    this.logBox = el("details", { class: "log", open: true }, el("summary", {}, "Log"), this.log);
    this.buttons = [this.inspect, this.settle, this.onward, this.use, this.save, this.now, this.resume, this.stop];
    const row = el(
      "header",
      { class: "run-head" },
      el("label", {}, "Run ", this.picker),
      this.badge,
      this.about,
      this.progress,
      this.ahead,
      el("span", { class: "run-actions" }, ...this.buttons),
    );
    const told = el("div", { id: "run-said", class: "wh" }, this.said);
    this.above = [row, this.bar, told, this.reason, this.unknown, this.message, this.warnings, this.alarms];
    this.below = [this.settingsBox, this.logBox];
    this.clear();
  }

  /** As it is before anything is known of a run: what stood there is about another one. */
  clear() {
    this.state("");
    setText(this.progress, "");
    this.done.style.width = "0";
    say(this.message, "");
    say(this.reason, "");
    for (const node of [...this.buttons, this.unknown, this.ahead]) node.hidden = true;
    setText(this.about, "");
    this.news = null;
    once(this.said, [], () => this.said.replaceChildren());
    this.fillWarnings([]);
    this.fillAlarms([], "");
    this.log.textContent = this.yaml.textContent = "";
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

  /** @param {Described} described */
  describe({ settings, yaml }) {
    this.yaml.textContent = yaml;
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

  /** @param {string} error @param {string} state Of a run that there is not, or not any more, or that cannot be read. */
  fail(error, state) {
    this.state(state, "failed");
    this.progress.textContent = "";
    for (const node of [this.bar, this.logBox, this.settingsBox, ...this.buttons]) node.hidden = true;
    this.unknown.hidden = false;
    say(this.reason, error);
  }

  /** @param {News} news */
  show(news) {
    const hadFocus = this.above.some((node) => node.contains(document.activeElement));
    const waits = news.state === "queued" && !news.started;
    if (this.news && this.news.state !== news.state) say(this.message, ""); // it was of another state
    this.news = news;
    const gone = news.alarms.some(({ name }) => name === "collapsed");
    if (gone) this.state(`${stateOf(news)} · collapsed`, "check");
    else this.state(stateOf(news));
    this.badge.title = news.reason;
    setText(this.about, news.about);
    setText(this.progress, progressText(news, Date.now() / 1000));
    this.done.style.width = `${news.total_steps ? Math.min(100, (100 * news.step) / news.total_steps) : 0}%`;
    this.bar.setAttribute("aria-valuemax", `${news.total_steps}`);
    this.bar.setAttribute("aria-valuenow", `${news.step}`);
    this.bar.classList.toggle("waiting", !news.final && news.state !== "running");
    this.bar.hidden = news.final;
    this.settingsBox.hidden = this.save.hidden = false;
    this.stop.hidden = news.final;
    this.stop.disabled = news.stopping;
    setText(this.stop, stopLabel(news));
    this.resume.hidden = !news.resumable;
    this.unknown.hidden = true;
    this.use.hidden = news.gives !== "reward model";
    this.inspect.hidden = this.onward.hidden = !news.policies.length;
    this.settle.hidden = !news.final;
    this.now.hidden = !waits || news.stopping || !news.reason;
    this.ahead.hidden = !(waits && news.behind);
    setText(this.ahead, `Show ${news.behind}`);
    const follow = (/** @type {string} */ target) => () => this.on.problems(target.replace("problems:", ""));
    once(this.said, news.said, () => {
      this.said.replaceChildren(...news.said.map((parts) => el("p", {}, ...sentence(parts, follow))));
    });
    this.fillWarnings(news.warnings);
    this.fillAlarms(news.alarms, news.name);
    const advice = news.state in ADVICE ? [news.reason, ADVICE[news.state]] : [];
    say(this.reason, advice.filter(Boolean).join("\n"));
    const beside = advice.length ? this.reason : this.settingsBox; // what a run failed of stands with the reason
    if (beside.nextSibling !== this.logBox) beside.after(this.logBox);
    const lines = news.log.join("\n");
    setText(this.log, lines);
    this.logBox.hidden = !lines;
    // What was pressed or said may be gone with the state that it was of.
    const focused = document.activeElement;
    if (hadFocus && (focused === document.body || !focused?.checkVisibility())) {
      this.badge.focus({ preventScroll: true });
    }
  }

  /** @param {string[]} warnings */
  fillWarnings(warnings) {
    this.warnings.hidden = !warnings.length;
    once(this.warnings, warnings, () => this.warnings.replaceChildren(...warnings.map((text) => el("li", {}, text))));
  }

  /** @param {AlarmPayload[]} alarms @param {string} run What is wrong, since when, perhaps why, and what may help. */
  fillAlarms(alarms, run) {
    this.alarms.hidden = !alarms.length;
    once(this.alarms, [run, alarms.map(({ name, change }) => [name, change])], () => this.alarms.replaceChildren());
    const shown = [...this.alarms.children];
    alarms.forEach(({ name, meaning, advice, since, where, change }, i) => {
      const item = shown[i] ?? this.alarms.appendChild(this.alarm(name, where, change, run));
      const [title, more] = item.querySelectorAll("b, span");
      const from = since === null ? "" : `Since step ${since}: `;
      setText(title, `${from}${from ? meaning : meaning[0].toUpperCase() + meaning.slice(1)}.`);
      setText(more, advice && ` ${advice[0].toUpperCase()}${advice.slice(1)}${/[.?]$/.test(advice) ? "" : "."}`);
    });
  }

  /** @param {string} name @param {string[]} where @param {string | null} change @param {string} run */
  alarm(name, where, change, run) {
    const lead = button(null, "Show the curve", () => this.on.lead(where));
    const next = change &&
      button(null, `Set for the next run: ${change}`, () => this.on.apply({ change: `${run}/${name}` }), {
        title: "Puts this run's settings with that change into the form of the next run; starts nothing, can be undone",
      });
    return el("li", { "data-alarm": name }, el("p", {}, el("b"), el("span")), el("div", {}, lead, next));
  }
}
