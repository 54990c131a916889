// The one place that names the vendored library's file.
export { html, render, useEffect, useLayoutEffect, useRef, useState } from "/static/vendor/preact-htm-3.1.1.js";
