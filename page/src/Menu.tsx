// A button that opens a short list of actions; Escape and leaving it close it.

import type { ComponentChildren } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";

interface Props {
  label: string;
  disabled: boolean;
  children: ComponentChildren;
}

export function Menu({ label, disabled, children }: Props) {
  const [open, setOpen] = useState(false);
  const root = useRef<HTMLDivElement>(null);
  useEffect(() => {
    if (!open) return;
    const leave = (event: Event) => {
      if (!root.current?.contains(event.target as Node)) setOpen(false);
    };
    document.addEventListener("pointerdown", leave);
    document.addEventListener("focusin", leave);
    return () => {
      document.removeEventListener("pointerdown", leave);
      document.removeEventListener("focusin", leave);
    };
  }, [open]);
  return (
    <div
      class="menu"
      ref={root}
      onKeyDown={(event) => {
        if (event.key !== "Escape" || !open) return;
        setOpen(false);
        root.current?.querySelector("button")?.focus();
      }}
    >
      <button type="button" class="quiet" disabled={disabled} aria-expanded={open} onClick={() => setOpen(!open)}>
        {label}
      </button>
      {open && (
        <div
          class="menu-items"
          onClick={() => {
            setOpen(false);
            root.current?.querySelector("button")?.focus();
          }}
        >
          {children}
        </div>
      )}
    </div>
  );
}
