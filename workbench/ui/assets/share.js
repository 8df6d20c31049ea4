// Taking Inspect along: links, files, and code for a notebook.

/** @import { PagePayload } from "./address.js" */
/** @typedef {{ code?: string, problem?: string }} CodePayload */
/** @typedef {{ name: string, type?: string, text?: string }} ExportPayload */
/** @import { Call, Handles } from "./payloads.js" */
/**
 * @typedef {Object} Server
 * @property {Call<{ tab: string }, string | null>} keep the name that the group on screen is saved by
 * @property {Call<{ tab: string, kind: string }, ExportPayload | null>} export
 */

import { copy, download, el } from "../../views/dom.js";
import { address } from "./address.js";
import { menu } from "./menu.js";
import { picture } from "./picture.js";
import { answerOf, follow } from "./widget.js";

const LINK_TITLE = "A link that opens this task, group, pattern, scheme, colours and pin";
const SAID_FOR = 8000; // milliseconds
const FILES = [
  ["html", "Save as HTML", "the heatmap as a page that stands alone"],
  ["png", "Save as PNG", "a picture of the heatmap as it is drawn"],
  ["json", "Save as JSON", "group, scores and credit"],
  ["steps", "Save steps as CSV", "one row a step"],
  ["tokens", "Save tokens as CSV", "one row a token"],
];

/** @param {Handles} handles Holds nothing to see: the browser tab's copy of the controls. */
export function keep(handles) {
  follow(handles, (_, /** @type {PagePayload | null} */ value) => {
    if (value) address.keep(value);
  });
}

/** @param {Handles<Server>} handles The menu that copies a link and exports files. */
export function tools(handles) {
  const { server } = handles;
  const message = el("span", { class: "said", role: "status" });
  const say = async (/** @type {Promise<string>} */ said) => {
    message.textContent = "…";
    const text = await said;
    message.textContent = text;
    setTimeout(() => {
      if (message.textContent === text) message.textContent = "";
    }, SAID_FOR);
  };
  const share = menu("Share", [
    { id: "copy-link", label: "Copy link", title: LINK_TITLE, chosen: () => say(copyLink(server)) },
    ...FILES.map(([kind, label, title]) => ({
      id: `export-${kind}`,
      label,
      title,
      chosen: () => say(saveExport(server, kind)),
    })),
  ]);
  follow(handles, (root) => {
    if (!root.hasChildNodes()) root.append(message, share);
  });
}

/** @param {Pick<Server, "keep">} server What to say of it is returned. */
export async function copyLink(server) {
  try {
    const saved = await answerOf(server.keep({ tab: address.tab }));
    if (saved) address.link = { ...address.link, saved };
    address.moved();
    return await copy(address.href()) ? "Link copied." : "The browser refused the clipboard; copy the address bar.";
  } catch {
    return "The workbench did not answer; try again.";
  }
}

/** @param {Server} server @param {string} kind What to say of it is returned. */
async function saveExport(server, kind) {
  const drawing = /** @type {HTMLElement | null} */ (document.querySelector("#heatmap"));
  if (!address.drawing || !drawing) return "There is no group to export yet.";
  try {
    const file = await answerOf(server.export({ tab: address.tab, kind: kind === "png" ? "name" : kind }));
    if (!file) return "There is no scored group to export yet.";
    const name = kind === "png" ? `${file.name}.png` : file.name;
    if (kind === "png") address.drawing.drawAll();
    const blob = kind === "png" ? await picture(drawing) : new Blob([file.text ?? ""], { type: file.type });
    download(name, blob);
    return `${name} saved.`;
  } catch (error) {
    return `No file was made: ${error instanceof Error ? error.message : error}`;
  }
}

/** @param {Handles} handles Code for a notebook: shown, and copied at once. */
export function code(handles) {
  follow(handles, async (root, /** @type {CodePayload | null} */ value) => {
    root.replaceChildren();
    if (value?.problem) root.append(el("p", { class: "error", role: "alert" }, value.problem));
    if (!value?.code) return;
    const text = value.code;
    const message = el("span", { class: "said", role: "status" });
    const tell = async () => {
      const refused = "The browser refused the clipboard; select the code and copy it.";
      message.textContent = await copy(text) ? "Copied." : refused;
    };
    const again = el("button", { type: "button", onclick: tell }, "Copy");
    const close = el("button", { type: "button", onclick: () => root.replaceChildren() }, "Close");
    const head = el("header", {}, el("b", {}, "Notebook code"), message, again, close);
    const shown = el("pre", { tabindex: 0, role: "region", "aria-label": "Notebook code" }, text);
    root.append(el("div", { class: "code-box" }, head, shown));
    await tell();
  });
}
