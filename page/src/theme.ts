// Runs before the page is drawn, so that it never flashes in the other theme.
const kept = localStorage.getItem("tokenroom.theme");
if (kept === "light" || kept === "dark") document.documentElement.dataset.theme = kept;
