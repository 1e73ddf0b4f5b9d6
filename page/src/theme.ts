// Runs before the page is drawn, so that it never flashes in the other theme.
import { remembered } from "./remembered";

const kept = remembered("theme");
if (kept === "light" || kept === "dark") document.documentElement.dataset.theme = kept;
