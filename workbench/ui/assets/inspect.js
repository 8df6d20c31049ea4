// The Inspect tab's right side: the group, and a line above it that says what it is or what is going on.

/** @import { GroupPayload } from "../../views/payloads.d.ts" */
/** @import { Why } from "../../views/drawing/payload.js" */
/** @import { LabelServer } from "../../views/payloads.d.ts" */
/** @import { Call, Handles } from "./payloads.js" */
/** @typedef {{ tab: string, rollout: number, token: number, which: "a" | "b" }} WhyAsked */
/** @typedef {{ texts: string[], finished: boolean[], prompt: string }} Stream */
/**
 * @typedef {{ show?: GroupPayload, about?: string, other?: string, stale?: string, group?: GroupPayload, busy?: string,
 *   stream?: Stream, back?: boolean, empty?: string, prompt?: string }} DrawingMessage What the right side is to do.
 */

import { el, say } from "../../views/dom.js";
import { mount } from "../../views/drawing/heatmap.js";
import { showPrompt } from "../../views/drawing/said.js";
import { address } from "./address.js";
import { checkFacts } from "./checks.js";
import { HandLabels } from "./labels.js";
import { follow, link, rootOf } from "./widget.js";

/** The group's prompt and where it is from, above all that is said of the group. */
const heading = () => (made ??= el("div", { class: "about" }));
/** @type {HTMLElement | undefined} */
let made;

/** @param {Handles} handles Where the group's prompt stands. */
export function title(handles) {
  rootOf(handles).append(heading());
}

/** @param {Handles<{ why: Call<WhyAsked, Why | null> } & LabelServer>} handles */
export function inspect(handles) {
  const view = new InspectView(handles);
  follow(handles, (root, /** @type {DrawingMessage | null} */ message) => view.update(root, message ?? {}));
}

/** @param {Pick<GroupPayload, "prompt">} payload @param {string} [columns] The prompt as a title, and what it is of. */
function nameGroup({ prompt }, columns) {
  const head = heading(), title = head.querySelector("h2") ?? el("h2", { tabindex: 0 });
  if (!title.isConnected) head.prepend(title);
  head.querySelector("p")?.remove();
  if (columns) head.append(el("p", {}, columns));
  showPrompt(title, prompt);
}

/** @typedef {{ prompt: string, rollouts: { texts: string[] }[] }} Answers */

/**
 * Whether two groups have the same answers. A group is sampled without being scored where a reward fails; then it takes
 * the old one's place all the same.
 * @param {Answers} a @param {Answers} b
 */
export function sameAnswers(a, b) {
  const text = (/** @type {Answers} */ group, /** @type {number} */ g) => group.rollouts[g].texts.join("");
  return a.prompt === b.prompt && a.rollouts.length === b.rollouts.length &&
    a.rollouts.every((_, g) => text(a, g) === text(b, g));
}

/** Unfolds what each reward gave, below the list of rewards. */
function showStatistics() {
  const details = document.querySelector("#watch details");
  if (details instanceof HTMLDetailsElement) details.open = true;
  details?.scrollIntoView({ block: "nearest" });
}

const sampleAgain = () => /** @type {HTMLElement | null} */ (document.querySelector("#sample"))?.click();

class InspectView {
  /** @param {Parameters<typeof inspect>[0]} handles */
  constructor({ server, trigger }) {
    this.busy = el("p", { class: "busy", role: "status", hidden: true });
    this.stale = el("p", { class: "stale", role: "status", hidden: true });
    this.holder = el("div", { id: "heatmap" });
    this.heatmap = mount(this.holder, {
      explain: (rollout, token, which) => server.why({ tab: address.tab, rollout, token, which }),
      onPin: (pinned) => address.pin(pinned),
      onRemedy: (remedy) => trigger("apply", { remedy }),
      actions: { statistics: showStatistics },
      facts: checkFacts(),
    });
    new HandLabels(this.heatmap, server);
    this.shown = false;
  }

  /** @param {HTMLElement} root @param {DrawingMessage} message */
  update(root, message) {
    if (!root.hasChildNodes()) root.append(this.busy, this.stale, this.holder);
    this.placePanels();
    if (!Object.keys(message).length) return;
    if (message.back) {
      this.back(root);
      return;
    }
    this.change(message);
    say(this.busy, message.busy);
    const drawn = this.heatmap.data.rollouts[0]?.steps ? "Showing the last valid result" : "Not scored";
    say(this.stale, message.stale ? `${drawn}. ${message.stale}` : message.other ?? message.empty);
    if (message.other && !message.stale) this.stale.append(" ", link("Sample this one", sampleAgain));
    if (message.show) this.holder.classList.toggle("foreign", Boolean(message.other));
    root.classList.toggle("is-stale", Boolean(message.stale));
    // One button leads on: to training from a group that is scored and up to date, else to such a group.
    const leadsOn = Boolean(message.show) && !message.other && !message.stale;
    document.getElementById("actions")?.classList.toggle("scored", leadsOn);
    root.setAttribute("aria-busy", String(Boolean(message.busy)));
  }

  /** Gradio's panels stand below the facts, which open them. */
  placePanels() {
    const panels = [...document.querySelectorAll(".drawer")].filter((panel) => !this.holder.contains(panel));
    this.holder.querySelector(".lead")?.after(...panels);
  }

  /** @param {HTMLElement} root Where texts had begun to grow, the old group is drawn anew as soon as it is scored. */
  back(root) {
    if (this.shown) this.heatmap.dim(false);
    say(this.busy, this.shown ? "" : "scoring");
    root.setAttribute("aria-busy", String(!this.shown));
  }

  /** @param {DrawingMessage} message */
  change({ show, about, stale, group, stream, busy, empty, prompt = "" }) {
    if (show) {
      this.draw(show, about);
      address.follow(this.heatmap);
    } else if (stale && group) {
      if (this.shown && sameAnswers(this.heatmap.data, group)) this.heatmap.dim(false);
      else this.draw(group);
    } else if (stream) {
      this.heatmap.stream(stream.texts, stream.finished);
      nameGroup(stream);
      this.shown = false;
    } else if (busy) this.heatmap.dim(true);
    else if (empty) {
      this.holder.classList.add("foreign"); // those on screen answer another prompt
      nameGroup({ prompt });
    }
  }

  /** @param {GroupPayload} payload @param {string} [columns] */
  draw(payload, columns) {
    this.heatmap.draw(payload);
    nameGroup(payload, columns);
    this.shown = true;
  }
}
