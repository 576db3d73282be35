// Long lists: only the rows near the eye are in the page. The container scrolls; spacers stand for the rest.
import { useEffect, useRef, useState } from "./html.js";

const AHEAD = 20;

export function useWindow(total, height, rows = 120) {
  const box = useRef(null);
  const [from, setFrom] = useState(0);
  useEffect(() => {
    const element = box.current;
    if (!element) return undefined;
    const moved = () => setFrom((old) => {
      const first = Math.max(0, Math.floor(element.scrollTop / height) - AHEAD);
      return Math.abs(first - old) < AHEAD / 2 && first !== 0 ? old : first;
    });
    element.addEventListener("scroll", moved, { passive: true });
    return () => element.removeEventListener("scroll", moved);
  }, [height, total > 0]);
  const first = Math.min(from, Math.max(0, total - rows));
  const last = Math.min(total, first + rows);
  const to = (n) => { if (box.current) box.current.scrollTop = Math.max(0, n * height - 100); };
  return { box, first, last, above: first * height, below: (total - last) * height, to };
}
