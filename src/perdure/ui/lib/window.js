// Long lists: only the rows near the eye are in the page. The container, or the whole page, scrolls; spacers stand for the rest.
import { useEffect, useRef, useState } from "./html.js";

const AHEAD = 20;
const FIRST = 60; // until the height of the box is known

export function useWindow(total, height, { whole = false } = {}) {
  const box = useRef(null);
  const [from, setFrom] = useState(0);
  const size = useRef(height);
  const [rows, setRows] = useState(FIRST); // those that are seen, and some on both sides
  useEffect(() => {
    const element = box.current;
    if (!element) return undefined;
    const moved = () => {
      size.current = (whole && element.querySelector("tbody tr:not(.gap)")?.offsetHeight) || height;
      setRows(Math.ceil((whole ? innerHeight : element.clientHeight) / size.current) + 2.5 * AHEAD);
      const above = whole ? Math.max(0, -element.getBoundingClientRect().top) : element.scrollTop;
      setFrom((old) => {
        const first = Math.max(0, Math.floor(above / size.current) - AHEAD);
        return Math.abs(first - old) < AHEAD / 2 && first !== 0 ? old : first;
      });
    };
    const scrolls = whole ? window : element;
    moved();
    scrolls.addEventListener("scroll", moved, { passive: true });
    addEventListener("resize", moved);
    return () => { scrolls.removeEventListener("scroll", moved); removeEventListener("resize", moved); };
  }, [height, total > 0]);
  const first = Math.min(from, Math.max(0, total - rows));
  const last = Math.min(total, first + rows);
  const to = (n) => { if (box.current) box.current.scrollTop = Math.max(0, n * height - 100); };
  return { box, first, last, above: first * size.current, below: (total - last) * size.current, to };
}
