// The Train tab's right side: one run, followed live.
//
// The page holds the cursor: it asks once a second for the metrics it has not seen and the rollouts stored since, and
// adds them to what is drawn. While the tab cannot be seen, nothing is asked for but whether a run is over. Which run, step, group and pinned step
// of a rollout are shown, and what the curves are zoomed to, is in the page's address, so that a reload or a link shows
// the same. Each tab that is shown is an entry of the browser's history, which remembers its name; going back clicks its
// button.

/** @import { Answer, Failed, ListedRun, LiveValue, News } from "../../../views/payloads.d.ts" */
/** @import { Call, Handles } from "../payloads.js" */
/** @import { LabelServer, TrainServer } from "../../../views/payloads.d.ts" */
/** @import { Shown } from "./state.js" */

import { mount as mountCurves, prepare } from "../../../views/curves.js";
import { el, say } from "../../../views/dom.js";
import { answerOf, follow, link, rootOf, tabs, whileVisible } from "../widget.js";
import { RunHead } from "./head.js";
import { RolloutList } from "./list.js";
import { ProblemList } from "./problems.js";
import { Rollouts } from "./rollouts.js";
import { addressWriter, readAddress, readNames, startedSince, withoutRollouts } from "./state.js";

const TICK = 1000;
const HEIGHT = 210; // of a large chart
const TABS = "#pages [role=tab][id$='-tab-button']";
const LIST_EVERY = 5; // ticks between two looks at the list of runs
const TAB = "train-tab-button";
const HELP = "help-tab-button"; // the only tab whose address says no more than that it is shown
const ACTIVE = ["queued", "starting", "running"];
const PRESSED = "workbench-start"; // in the tab's storage: the runs there were when Start was pressed, until its answer
const PATIENCE = 20; // looks at the list for the run of a Start whose answer was lost with the connection
const RELOADED = 30_000; // milliseconds in which Gradio loads the page anew once the connection is back
const NO_RUN = "Start was pressed as the connection was lost, and no run came of it; press it again.";
/** @type {Record<string, string>} */
const ENDS = { finished: "has finished", stopped: "was stopped", failed: "has failed", crashed: "has crashed" };
const NO_ANSWER = "The workbench did not answer; try again.";

/** @param {string} tab the tab of the new entry @param {string} before that of the present one */
function newEntry(tab, before = tab) {
  history.replaceState({ ...history.state, tab: before }, "");
  const url = new URL(location.href);
  if (tab === HELP) url.searchParams.set("tab", "help");
  else if (url.searchParams.get("tab") === "help") url.searchParams.delete("tab");
  history.pushState({ tab }, "", url);
}

/** Makes an entry of each tab that is shown, and shows that of an entry that is gone back or forward to. */
export function followHistory() {
  let going = false; // through the history
  document.addEventListener("click", (event) => {
    const button = event.target instanceof Element ? event.target.closest(TABS) : null;
    const before = document.querySelector(`${TABS}[aria-selected=true]`);
    if (!button || going || !before || before === button) return;
    newEntry(button.id, before.id);
  }, { capture: true });
  addEventListener("popstate", (event) => {
    const button = event.state?.tab && document.getElementById(event.state.tab);
    if (!button || button.getAttribute("aria-selected") === "true") return;
    going = true;
    button.click();
    button.focus();
    going = false;
  });
}

/** @param {Handles<TrainServer & LabelServer>} handles */
export function train(handles) {
  const tab = new Train(handles);
  tabs.showTrain = (name) => tab.open(name);
}

class Train {
  /** @param {Handles<TrainServer & LabelServer>} handles */
  constructor(handles) {
    const { element, server } = handles;
    this.handles = handles;
    this.element = element;
    this.server = server;
    /** @type {ListedRun[]} */
    this.runs = [];
    /** @type {string | null} the run that is shown */
    this.run = null;
    this.cursor = 0; // up to where its metrics are known
    this.final = false; // whether it is over
    this.isLive = false; // whether it was seen going on
    this.ticks = 0;
    this.lost = false;
    this.generation = 0; // answers to what was asked about another run are dropped
    /** @type {number | null} the generation that is being asked about */
    this.loading = null;
    /** @type {string | null} the token of the start that was shown */
    this.startShown = null;
    this.looked = false; // whether the runs there are were listed
    /** @type {string[] | null} the runs there were when Start was pressed, where its answer is lost */
    this.awaited = null;
    this.patience = PATIENCE;
    this.write = addressWriter();
    this.head = new RunHead({
      open: (name) => this.pick(name),
      stop: () => this.stop(),
      resume: () => this.resume(),
      apply: (wanted) => handles.trigger("apply", wanted),
      say: (text) => say(this.head.message, text),
      downloads: JSON.parse(handles.props.value).downloads,
      startNow: () => {
        say(this.head.message, "starting …");
        return this.ask(this.head.now, (request) => this.server.start_now(request));
      },
      showRuns: () => tabs.showRuns([]),
      problems: (kind) => this.problems.show(kind),
      lead: (metrics) => [...metrics, "step_reward", "reward"].some((metric) => this.curves.lead(metric)),
    });
    this.rollouts = new Rollouts(server, () => this.writeAddress());
    this.problems = new ProblemList(server);
    this.list = new RolloutList(server, (place) => this.rollouts.show(place));
    const chartsRoot = el("div", { id: "curves" });
    const { pointed } = this.rollouts.controls;
    const redraw = () => {
      this.generation++; // what is asked for already is smoothed otherwise, or lacks a group
      this.cursor = 0;
      this.pollNow();
    };
    this.curves = mountCurves(chartsRoot, {
      height: HEIGHT,
      csv: (key) => this.server.curve({ run: this.run ?? "", key }),
      onSmooth: redraw,
      onOpen: redraw,
      onStep: (step) => this.rollouts.pickNear(step),
      onZoom: () => this.writeAddress(),
      onPoint: (step) => {
        pointed.textContent = step === null ? "" : `pointing at step ${step}`;
      },
    });
    this.waiting = el("p", { class: "waiting-note" }, "Curves and rollouts appear with the first step.");
    this.without = el("p", { class: "about", id: "run-without-rollouts", hidden: true });
    this.empty = el("section", { class: "wc ahead", "aria-label": "Curves of a run" });
    this.live = el(
      "div",
      { class: "live", hidden: true },
      ...this.head.above,
      el("section", { "aria-label": "Curves" }, chartsRoot),
      this.waiting,
      this.without,
      this.problems.node,
      el("section", { class: "wc", "aria-label": "Further curves" }, this.curves.folded),
      this.list.node,
      this.rollouts.node,
      ...this.head.below,
    );
    rootOf(handles).append(this.empty, this.live);
    this.start();
  }

  /** Draws the charts that there will be, empty, until there is a run. */
  drawAhead() {
    /** @type {[string, string][]} */
    const charts = JSON.parse(this.handles.props.charts ?? "[]");
    const figures = charts.map(([title, about]) =>
      el(
        "figure",
        { class: "curve" },
        el("figcaption", {}, el("b", {}, title)),
        el("div", { class: "plot" }, el("p", {}, about), el("small", {}, "training step")),
      )
    );
    const said = el("p", {}, "No run yet. Its curves will be drawn here from its first step on:");
    this.empty.replaceChildren(said, el("div", { class: "curves large" }, ...figures));
  }

  start() {
    const first = readAddress(new URL(location.href).searchParams);
    this.recall();
    this.handles.watch("charts", () => this.drawAhead());
    this.drawAhead();
    // The button itself may be mounted after this.
    document.addEventListener("click", ({ target }) => {
      if (!this.looked || !(target instanceof Element && target.closest("#start"))) return;
      sessionStorage.setItem(PRESSED, JSON.stringify(this.runs.map((run) => run.name)));
    }, true);
    follow(this.handles, (_, /** @type {LiveValue | null} */ value) => {
      if (!value || value.start === this.startShown) return;
      const answered = this.startShown !== null || value.start !== "";
      this.startShown = value.start;
      if (answered) this.settleStart();
      else this.open(first.run, first.run ? first : {});
      if (!answered || !value.run) return;
      this.ticks = 0; // the list gains a run
      this.started(value.run);
    });
    whileVisible(this.element, () => this.tick(), () => TICK);
    addEventListener("popstate", (event) => {
      const shown = readAddress(new URL(location.href).searchParams);
      if (event.state?.tab === TAB && shown.run && shown.run !== this.run) this.open(shown.run, shown);
    });
    // Showing the tab again is worth a look at once; leaving it takes its part of the address away.
    new IntersectionObserver((entries) => {
      if (entries.some((entry) => entry.isIntersecting)) this.tick();
      else this.writeAddress();
    }).observe(this.element);
  }

  // What Start was answered may be lost with the connection; Gradio loads the page anew then, or notices nothing.
  recall() {
    this.awaited = readNames(sessionStorage.getItem(PRESSED));
    this.patience = PATIENCE;
  }

  settleStart() {
    this.awaited = null;
    sessionStorage.removeItem(PRESSED);
  }

  /** @param {string[]} before */
  lookForStarted(before) {
    const name = startedSince(before, this.runs);
    if (name === null && --this.patience > 0) return;
    this.awaited = null;
    setTimeout(() => this.settleStart(), RELOADED); // a page that is being loaded anew has to find the run, too
    if (name !== null) this.started(name);
    else say(this.head.message, NO_RUN);
  }

  /** @param {string} name A new run: it is shown, but not in place of one that is going on. */
  started(name) {
    if (!this.isLive || name === this.run) return this.choose(name);
    say(this.head.message, `${name} is started; this run goes on. `);
    this.head.message.append(link(`Show ${name}`, () => this.pick(name)));
  }

  /** @param {string} name Somebody's own choice of a run. */
  pick(name) {
    this.settleStart();
    this.choose(name);
  }

  get isVisible() {
    return this.element.isConnected && this.element.offsetParent !== null;
  }

  writeAddress() {
    if (!this.curves) return; // while the parts are made
    const url = new URL(location.href);
    const { step, follow: following, group, watched, place } = this.rollouts;
    const shown = { run: this.run, step: following ? null : step, group, watched, place, range: this.curves.range };
    this.write(url.searchParams, this.isVisible && this.run ? shown : null);
    if (url.href !== location.href) history.replaceState(history.state, "", url);
  }

  /** @param {string} name Another run in place of the one that is shown: Back returns to that. */
  choose(name) {
    if (this.isVisible && this.run && this.run !== name) newEntry(TAB);
    this.open(name);
  }

  /** @param {string | null} name @param {Partial<Shown>} [shown] */
  open(name, shown = {}) {
    this.generation++;
    this.run = name;
    this.cursor = 0;
    this.final = this.isLive = false;
    this.rollouts.clear(name, shown);
    this.problems.clear(name);
    this.list.clear(name);
    this.curves.name = name ?? "";
    this.curves.reset(shown.range ?? null);
    this.head.clear();
    this.live.hidden = !name;
    this.empty.hidden = Boolean(name);
    const controls = /** @type {(HTMLElement & { fold?: () => void }) | null} */ (
      document.getElementById("train-controls")
    );
    controls?.classList.toggle("folds", Boolean(name)); // on a narrow screen
    controls?.fold?.();
    this.without.hidden = true;
    this.waiting.hidden = false;
    this.head.drawPicker(this.runs, name);
    this.writeAddress();
    if (!name) return;
    prepare();
    this.describe(name);
    this.handles.trigger("select", { run: name });
    this.pollNow();
  }

  /** @param {string} run */
  async describe(run) {
    const answer = await this.server.describe({ run });
    if (run === this.run && answer && !("error" in answer)) this.head.describe(answer);
  }

  // ── one tick ───────────────────────────────────────────────────────────────────────────────────────────────

  async tick() {
    this.writeAddress();
    const isFarOff = !this.isVisible;
    if (isFarOff && !(this.isLive && this.ticks % LIST_EVERY === 0)) return void this.ticks++;
    try {
      if (this.lost) this.recall();
      if (this.ticks++ % LIST_EVERY === 0 || this.awaited) await this.look();
      if (this.run && (this.lost || !(this.final && this.cursor))) await this.poll();
      this.lost = false;
    } catch {
      this.noAnswer();
    }
  }

  noAnswer() {
    this.lost = true;
    this.head.lost();
  }

  /** Without waiting for the next tick. */
  pollNow() {
    return this.poll().catch(() => this.noAnswer());
  }

  async look() {
    this.runs = await answerOf(this.server.runs_table({}));
    this.looked = true;
    if (this.runs.some((run) => run.name === this.run && ACTIVE.includes(run.state))) this.final = false; // resumed
    this.head.drawPicker(this.runs, this.run);
    if (!this.isListed) this.final = false; // deleted, or older than those listed: asked about again
    if (this.awaited) this.lookForStarted(this.awaited);
    if (!this.run && this.runs.length) this.open(this.runs[0].name);
  }

  async poll() {
    const { generation: asked, run, cursor } = this;
    if (this.loading === asked || run === null) return;
    this.loading = asked;
    try {
      const news = await answerOf(
        this.server.poll({
          run,
          cursor,
          smoothing: this.curves.smoothing,
          groups: this.curves.open,
          ...this.rollouts.known,
        }),
      );
      if (asked === this.generation) this.take(news);
    } finally {
      if (this.loading === asked) this.loading = null;
    }
  }

  /** @param {News | Failed} news */
  take(news) {
    if ("error" in news) {
      this.head.fail(news.error, this.head.news && !this.isListed ? "deleted" : "unknown");
      this.waiting.hidden = true;
      this.final = true;
      this.cursor ||= 1; // nothing more to ask
      return;
    }
    if (news.restarted) this.rollouts.forget();
    if (news.folds) this.curves.tell(news.folds);
    if (news.panels) this.curves.show(news.panels);
    this.curves.add(news.rows);
    this.curves.lose(news.lost);
    this.cursor = news.cursor || (news.final ? 1 : 0);
    this.final = this.rollouts.final = news.final;
    const ended = news.final && this.isLive;
    if (ended) this.handles.trigger("end"); // its pace is known now: the next run's time is told by it
    this.isLive = !news.final;
    this.head.show(news);
    if (ended) this.tellEnd(news);
    this.relist(news);
    this.rollouts.add(news);
    this.problems.offer(news.answers);
    this.list.offer(this.rollouts.stored.batch);
    say(this.without, withoutRollouts(news, !this.rollouts.node.hidden));
    this.waiting.hidden = news.final || !this.rollouts.node.hidden || !this.curves.isEmpty;
  }

  /** @param {News} news Says that a run that was followed is over, in the header too if another tab is shown. */
  tellEnd({ name, state, step }) {
    const said = `${name} ${ENDS[state] ?? "has ended"} at step ${step}`;
    say(this.head.message, `${said}.`);
    if (this.element.offsetParent) return;
    tabs.tell(said, () => {
      document.getElementById(TAB)?.click();
      this.pick(name);
    });
  }

  /** Whether the list of runs has the one that is shown. */
  get isListed() {
    return this.run === null || this.runs.some(({ name }) => name === this.run);
  }

  /** @param {News} news */
  relist(news) {
    const listed = this.runs.find((run) => run.name === news.name);
    if (!listed || listed.state === news.state) return;
    listed.state = news.state;
    this.head.drawPicker(this.runs, this.run);
  }

  // ── stopping and resuming ──────────────────────────────────────────────────────────────────────────────────

  stop() {
    say(this.head.message, "stopping at the end of the step …");
    return this.ask(this.head.stop, (request) => this.server.stop(request));
  }

  resume() {
    say(this.head.message, "resuming …");
    return this.ask(this.head.resume, (request) => this.server.resume(request));
  }

  /**
   * What became of a request is said on the page of its own run only, not on one that was opened meanwhile.
   * @param {HTMLButtonElement} button @param {Call<{ run: string }, Answer>} call
   */
  async ask(button, call) {
    const { generation: asked, run } = this;
    if (run === null) return;
    const hasFocus = document.activeElement === button; // which goes when it is disabled
    button.disabled = true;
    if (hasFocus) this.head.message.focus({ preventScroll: true }); // where the answer is said
    const { message } = await answerOf(call({ run })).catch(() => ({ message: NO_ANSWER }));
    button.disabled = false;
    if (asked !== this.generation) return;
    say(this.head.message, message);
    this.final = false;
    this.pollNow();
  }
}
