//go:build !linux

package main

func dropPageCache(string) {}
