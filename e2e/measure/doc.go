// Package measure tests what benchmarks start daemons with: a program that fails, and the
// processors of this process and of others.
package measure
