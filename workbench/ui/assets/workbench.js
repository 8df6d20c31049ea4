// The page's own scripts: each export is what a Gradio element calls when it loads, see `drawn` in tabs/common.py.

import { listenToControls } from "./controls.js";
import { takeDrops } from "./opening.js";
import { restoreTheme } from "./page.js";
import { followHistory } from "./train/train.js";

export { allChanges, changed, changesAtPress, replaced } from "./changes.js";
export { checkSetup, clinic, findings, panelTitle, probes, sides, strip } from "./checks.js";
export { code, keep, tools } from "./share.js";
export { facts, note } from "./notes.js";
export { header } from "./page.js";
export { help } from "./help.js";
export { inspect, title } from "./inspect.js";
export { codeShown, codeTyped, rewardEditor, rewardMade, rewards, rewardsSaid } from "./rewards.js";
export { settings } from "./settings.js";
export { watch } from "./statistics.js";
export { presets, table } from "./table.js";
export { taskRows } from "./rows.js";
export { runs } from "./runs/runs.js";
export { train } from "./train/train.js";

restoreTheme();
listenToControls();
takeDrops();
followHistory();
