// Package chart draws columns and lines as SVG elements that stand in a page.
//
// A chart is text of ours, made in one pass: axes with round numbers, grid
// lines, marks. The same chart gives the same bytes. It has no colors of its
// own but names of them ([Color]); the page has [Style] once, which gives them
// their values, other ones where the reader prefers dark. All text is escaped,
// and a number that is none (NaN, an infinity) is left out.
//
// # Owns
//
// The palette, and how axes and marks are laid out.
//
// # Never does
//
// It does not know the meaning of a chart, loads nothing, and writes no file.
//
// # Locks and buffers
//
// None: it keeps no state beyond a call.
package chart
