import "./styles.css";
import "./plan/plan.css";
import "./lookup/lookup.css";
import "./doctor/doctor.css";
import "./live/live.css";
import { render } from "preact";
import { App } from "./App";
import { type Language, questionOf } from "./question";
import { remembered } from "./remembered";

const kept = remembered("language");
const preferred: Language = navigator.language.toLowerCase().startsWith("zh") ? "zh" : "en";
const language = kept === "en" || kept === "zh" ? kept : preferred;
const root = document.getElementById("page");
if (root) render(<App first={await questionOf(new URL(location.href), language)} />, root);
