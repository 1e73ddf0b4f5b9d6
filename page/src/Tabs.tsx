// The sections under the answer: the ARIA tabs pattern, arrows move between them.

import type { ComponentChildren } from "preact";
import { useEffect, useRef } from "preact/hooks";

export interface Tab {
  id: string;
  label: string;
}

interface Props {
  tabs: Tab[];
  chosen: string;
  label: string;
  onChoose: (id: string) => void;
  children: ComponentChildren;
}

export function Tabs({ tabs, chosen, label, onChoose, children }: Props) {
  const row = useRef<HTMLDivElement>(null);
  const among = tabs.some((tab) => tab.id === chosen);
  useEffect(() => {
    const tab = row.current?.querySelector<HTMLElement>("[aria-selected=true]");
    if (!row.current || !tab) return;
    const { left, right } = row.current.getBoundingClientRect();
    const box = tab.getBoundingClientRect();
    if (box.left < left) row.current.scrollLeft -= left - box.left;
    else if (box.right > right) row.current.scrollLeft += box.right - right;
  }, [chosen, tabs.length]);
  const move = (event: KeyboardEvent) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    event.preventDefault();
    const at = tabs.findIndex((tab) => tab.id === chosen);
    const next = (at + step + tabs.length) % tabs.length;
    onChoose(tabs[next]?.id ?? chosen);
    (row.current?.children[next] as HTMLElement | undefined)?.focus();
  };
  return (
    <section class="tabs">
      <div role="tablist" aria-label={label} ref={row} onKeyDown={move}>
        {tabs.map((tab, index) => (
          <button
            key={tab.id}
            type="button"
            role="tab"
            id={`tab-${tab.id}`}
            aria-selected={tab.id === chosen}
            aria-controls={among ? "tab-panel" : undefined}
            tabIndex={tab.id === chosen || (!among && index === 0) ? 0 : -1}
            onClick={() => onChoose(tab.id)}
          >
            {tab.label}
          </button>
        ))}
      </div>
      {among && (
        <div id="tab-panel" role="tabpanel" aria-labelledby={`tab-${chosen}`} tabIndex={0}>
          {children}
        </div>
      )}
    </section>
  );
}
