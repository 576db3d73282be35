// Components: preact with htm. Values are text nodes; no markup is ever made from data.
import { h, render, Fragment } from "../vendor/preact.js";
import htm from "../vendor/htm.js";

export const html = htm.bind(h);
export { h, render, Fragment };
export { useState, useEffect, useRef, useLayoutEffect, useMemo, useCallback } from "../vendor/hooks.js";
