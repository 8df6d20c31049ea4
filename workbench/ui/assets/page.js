// The page around the tabs: header, theme, notes beside controls, shortcuts.
//
// Each function below draws one gr.HTML element from its JSON value, through text nodes only. Gradio hands it the
// element, its props, a way to watch them, and the server functions the element was given.
(() => {
  if (globalThis.WorkbenchPage) return;

  const THEME = "workbench-theme";

  function el(tag, attributes = {}, ...children) {
    const node = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) {
      if (value === null || value === undefined || value === false) continue;
      if (name === "class") node.className = value;
      else if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
      else node.setAttribute(name, value === true ? "" : value);
    }
    node.append(...children.filter((child) => child !== null && child !== undefined && child !== false));
    return node;
  }

  const read = (props) => {
    if (!props.value) return null;
    return JSON.parse(props.value);
  };

  // Draws now and whenever the value changes.
  function follow({ element, props, watch }, draw) {
    const root = element.querySelector(".drawn");
    const update = () => draw(root, read(props));
    watch("value", update);
    update();
    return root;
  }

  // Calls `task` every `milliseconds()` while the element is on a page that can be seen; never two at once.
  function whileVisible(element, task, milliseconds) {
    let timer = 0;
    const next = () => { timer = setTimeout(tick, milliseconds()); };
    const tick = async () => {
      clearTimeout(timer);
      if (!element.isConnected) return;
      if (!document.hidden) await task();
      next();
    };
    document.addEventListener("visibilitychange", () => { if (!document.hidden) tick(); });
    tick();
  }

  // ── notes ────────────────────────────────────────────────────────────────────────────────────────────────────

  // {"text", "level", "line", "detail", "editor"}: a sentence beside a control; with `editor` and `line`, that line of
  // the code editor is highlighted, as gr.Code has no marks of its own.
  function note(handles) {
    const mark = lineMark();
    follow(handles, (root, value) => {
      mark(value?.editor, value?.line);
      root.className = `drawn ${value ? value.level : "none"}`;
      root.setAttribute("role", value?.level === "error" ? "alert" : "status");
      root.replaceChildren();
      if (!value) return;
      root.append(el("p", { title: value.level === "plain" ? value.text : null }, value.text));
      if (value.detail) root.append(el("pre", {}, value.detail));
    });
  }

  // Marks a line of a code editor, by a style rule for its place among the lines on screen: the editor draws only those
  // in sight and would undo a class of ours. The line is found by its number in the gutter, and again after each scroll.
  function lineMark() {
    const style = document.head.appendChild(el("style"));
    let editor = "", line = 0;
    const place = () => {
      const box = editor ? document.getElementById(editor) : null; // it may have been let go since this was asked for
      const label = box && [...box.querySelectorAll(".cm-lineNumbers .cm-gutterElement")].find((node) => node.textContent === String(line) && node.style.visibility !== "hidden");
      const lines = label ? [...box.querySelectorAll(".cm-content > *")] : [];
      const top = label?.getBoundingClientRect().top;
      const index = lines.findIndex((node) => node.classList.contains("cm-line") && Math.abs(node.getBoundingClientRect().top - top) < 3);
      const rule = index < 0 ? "" : `#${CSS.escape(editor)} .cm-content > .cm-line:nth-child(${index + 1}) { background: var(--wb-error-line); box-shadow: inset 2px 0 0 var(--wb-bad); }`;
      if (style.textContent !== rule) style.textContent = rule;
    };
    let due = 0;
    const soon = () => { if (editor) { cancelAnimationFrame(due); due = requestAnimationFrame(place); } };
    document.addEventListener("scroll", soon, { capture: true, passive: true });
    document.addEventListener("click", soon); // an editor that was folded away has no places
    const drawn = new MutationObserver(soon);
    return (name, number) => {
      drawn.disconnect();
      [editor, line] = number ? [name ?? "", Number(number)] : ["", 0];
      style.textContent = "";
      const box = editor ? document.getElementById(editor) : null;
      if (box) drawn.observe(box, { childList: true, subtree: true });
      soon();
    };
  }

  // [[name, value], …] as a list of terms.
  function facts(handles) {
    follow(handles, (root, value) => {
      root.replaceChildren(...(value ? [el("dl", { class: "facts" }, ...value.flatMap(([name, text]) => [el("dt", {}, name), el("dd", {}, text)]))] : []));
    });
  }

  // ── header ───────────────────────────────────────────────────────────────────────────────────────────────────

  function header(handles) {
    const { element, server } = handles;
    const status = el("span", { id: "policy-status", role: "status" });
    const theme = el("button", { type: "button", id: "theme", onclick: () => setTheme(document.body.classList.contains("dark") ? "light" : "dark") });
    const nameTheme = () => {
      const dark = document.body.classList.contains("dark");
      theme.textContent = dark ? "Light" : "Dark";
      theme.setAttribute("aria-label", `Switch to the ${dark ? "light" : "dark"} theme`);
    };
    new MutationObserver(nameTheme).observe(document.body, { attributes: true, attributeFilter: ["class"] });
    follow(handles, (root, value) => {
      root.replaceChildren(el("h1", {}, value.title), el("p", { class: "loop" }, value.loop), status, theme);
    });
    nameTheme();
    const columns = new MutationObserver(() => {
      document.querySelectorAll("#controls, #train-controls").forEach(foldControls);
      document.querySelectorAll(".cm-content:not([tabindex])").forEach(tidyEditor);
      document.querySelectorAll(".slot").forEach(nameEdit);
    });
    columns.observe(document.body, { childList: true, subtree: true });
    document.querySelectorAll("#controls, #train-controls").forEach(foldControls);
    let state = "off";
    whileVisible(element, async () => {
      try {
        const policy = await server.policy_status({});
        state = policy.state;
        status.textContent = describe(policy);
        status.title = policy.message;
        status.className = policy.state;
      } catch {
        state = "lost";
        status.textContent = "no connection to the workbench, trying again";
        status.className = "failed";
      }
    }, () => (state === "ready" ? 5000 : 1000));
  }

  function describe(policy) {
    const size = policy.parameters ? ` · ${(policy.parameters / 1e6).toPrecision(2)}M parameters` : "";
    switch (policy.state) {
      case "loading": return `loading policy, ${Math.round(policy.seconds)} s`;
      case "sampling": return `policy ${policy.policy} sampling`;
      case "ready": return `policy ${policy.policy}${size}${policy.device ? ` · ${policy.device}` : ""}`;
      case "failed": return `policy ${policy.policy} failed`;
      default: return "";
    }
  }

  function setTheme(name) {
    document.body.classList.toggle("dark", name === "dark");
    try { localStorage.setItem(THEME, name); } catch { /* private windows may refuse: the choice lasts until reload */ }
  }

  try {
    const chosen = localStorage.getItem(THEME);
    if (chosen) document.body.classList.toggle("dark", chosen === "dark");
  } catch { /* as above */ }

  // ── shortcuts and small behaviour ────────────────────────────────────────────────────────────────────────────

  document.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || !(event.ctrlKey || event.metaKey)) return;
    const button = document.querySelector("#sample");
    if (!button || button.disabled || button.offsetParent === null) return;
    event.preventDefault();
    event.stopPropagation(); // the code editor would take it for a new line
    button.click();
  }, { capture: true });

  // On a narrow screen the group, or the run, comes first: the controls fold down to the buttons, until asked for.
  function foldControls(column) {
    if (column.querySelector(".unfold")) return;
    const button = el("button", { type: "button", class: "unfold", onclick: () => unfold(!column.classList.contains("open")) });
    const unfold = (open) => {
      column.classList.toggle("open", open);
      button.textContent = open ? "Hide controls" : "Show controls";
      button.setAttribute("aria-expanded", String(open));
    };
    unfold(false);
    column.fold = () => unfold(false);
    column.prepend(button);
  }

  // The code editor's colours are too pale on white: the light theme mixes each with black. Its classes have names made
  // up as the page loads, so they are found by the rules that colour them. Its text is a stop of the Tab key.
  const darkened = document.head.appendChild(el("style"));
  function tidyEditor(content) {
    content.setAttribute("tabindex", "0");
    const rules = [...document.styleSheets, ...document.adoptedStyleSheets].filter((sheet) => sheet.ownerNode !== darkened && !sheet.href).flatMap((sheet) => [...sheet.cssRules]);
    const coloured = rules.filter((rule) => /^\.\u037c\w+$/.test(rule.selectorText ?? "") && rule.style.color);
    darkened.textContent = coloured.map((rule) => `body:not(.dark) ${rule.selectorText} { color: color-mix(in srgb, ${rule.style.color} 60%, black); }`).join("\n");
  }

  // A reward's code is folded away until asked for; the editor itself stays, with its cursor.
  document.addEventListener("click", (event) => {
    const button = event.target.closest?.(".slot-edit");
    if (!button) return;
    const slot = button.closest(".slot");
    slot.classList.toggle("open");
    nameEdit(slot);
  });

  function nameEdit(slot) {
    const button = slot.querySelector(".slot-edit"), open = String(slot.classList.contains("open"));
    if (button && button.getAttribute("aria-expanded") !== open) button.setAttribute("aria-expanded", open);
  }

  // Draws what `node` holds, but not again for the `key` it was drawn for last: what has the focus there keeps it.
  const drawnFor = new WeakMap();
  function once(node, key, draw) {
    const text = JSON.stringify(key);
    if (drawnFor.get(node) === text) return;
    drawnFor.set(node, text);
    draw();
  }

  globalThis.WorkbenchPage = { el, follow, whileVisible, note, facts, header, once };
})();
