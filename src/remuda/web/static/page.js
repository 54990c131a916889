// The one place that names the vendored library's file.
export { html, render, useEffect, useRef, useState } from "/static/vendor/preact-htm-3.1.1.js";
