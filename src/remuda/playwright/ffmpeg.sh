#!/bin/sh
# The machine's ffmpeg as Playwright's driver calls it, for videos.
#
# The driver counts on pictures that are not larger than the video, and pads them. A Firefox that cannot scale its
# screenshots sends them in the size of its window: those are scaled down here, and the rest stays as it is.

for word; do
  shift
  case $word in
    pad=*)
      size=${word#pad=}
      width=${size%%:*}
      size=${size#*:}
      height=${size%%:*}
      word="scale=w='min(iw,$width)':h='min(ih,$height)':force_original_aspect_ratio=decrease,$word"
      ;;
  esac
  set -- "$@" "$word"
done
exec ffmpeg "$@"
