// Components: preact with htm. Values are text nodes; no markup is ever made from data.
import { h, render, Fragment } from "../vendor/preact.js";
import htm from "../vendor/htm.js";

export const html = htm.bind(h);
export { h, render, Fragment };

// A component that is drawn again only when one of its properties is another value: the rows of a list that scrolls.
export const steady = (Drawn) => function Steady(properties) {
  this.shouldComponentUpdate = (next) => Object.keys({ ...this.props, ...next }).some((name) => this.props[name] !== next[name]);
  return h(Drawn, properties);
};
import { useLayoutEffect } from "../vendor/hooks.js";
export { useState, useEffect, useRef, useLayoutEffect, useMemo, useCallback } from "../vendor/hooks.js";

// A dialog is open before the next key is pressed; what had the focus has it again afterwards.
export function useModal(box) {
  useLayoutEffect(() => {
    const before = document.activeElement;
    box.current.showModal();
    return () => before?.focus?.();
  }, []);
}
