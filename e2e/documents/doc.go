// Package documents runs the command lines that the documentation tells people to type:
// page by page, in a copy of the checkout's files with folders and a network of its own.
//
// Every block of shell in the documents is in its table: run here, run by another test, or
// not run, with the reason.
package documents
