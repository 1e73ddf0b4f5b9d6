// What a browser remembers of a person's choices, where it may.

export function remembered(name: string): string | null {
  try {
    return localStorage.getItem(`tokenroom.${name}`);
  } catch {
    return null; // site data is blocked
  }
}

export function remember(name: string, value: string): void {
  try {
    localStorage.setItem(`tokenroom.${name}`, value);
  } catch {
    // site data is blocked or full: it is forgotten when the page closes
  }
}
