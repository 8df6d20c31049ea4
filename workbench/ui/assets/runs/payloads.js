// What the server answers to the Runs tab: the TypedDicts of handlers/runs.py and figures/overlay.py.
// @ts-check

/**
 * @typedef {{name: string, state: string, reason: string, final: boolean, resumable: boolean, gives: string | null, step: number,
 *   total: number, created: number, task: string, policy: string, scheme: string, seed: number, reward: number | null,
 *   reward_metric: string, accuracy_best: number | null, accuracy_last: number | null, seconds: number | null,
 *   corrupt: number, problem: string}} RunRow
 * @typedef {{name: string, entry: string, deleted: number}} Trashed
 * @typedef {{name: string, kind: string, state: string, reason: string, run: string | null, rows: number | null,
 *   metric: string | null, before: number | null, after: number | null, started: number | null}} Stage
 * @typedef {{name: string, state: string, reason: string, final: boolean, resumable: boolean, step: number,
 *   total: number, created: number, stages: Stage[]}} Pipeline
 * @typedef {{runs: RunRow[], pipelines: Pipeline[], more: number, trash: Trashed[]}} Table
 * @typedef {{name: string, seed: number}} Seed
 * @typedef {{key: string, label: string, runs: Seed[]}} Configuration
 * @typedef {{field: string, values: string[]}} Difference
 * @typedef {{run: string, error: string}} Missing
 * @typedef {{name: string, x: string | number[] | null, y: string | number[]}} RunLine
 * @typedef {{configuration: number, series: number, x: string | number[], mean: string | number[],
 *   low: string | number[] | null, high: string | number[] | null, runs: RunLine[]}} OverlayLine
 * @typedef {{key: string, title: string, about: string, share: boolean, more: boolean, named: boolean, x: string,
 *   series: object[], lines: OverlayLine[]}} OverlayPanel
 * @typedef {{configurations: Configuration[], panels: OverlayPanel[], differences: Difference[], order: string[],
 *   missing: Missing[], dropped: number}} Overlay
 * @typedef {{moved: Trashed[], problems: string[]}} Removed
 * @typedef {{restored: string[], problems: string[]}} Restored
 */
export {};
