package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/kvstored/kvstored/e2e/daemon"
)

const mostFlaky = 3 // in one run

var (
	// mayTry are the packages of e2e whose tests may miss a deadline. History, kills,
	// damage, power, equality with an engine and isolation have one try.
	mayTry = []string{"browser", "commands", "daemon", "examples", "metrics", "packages", "python", "remote", "router"}
	// grave is what a failure may not say that is to have a second try.
	grave = regexp.MustCompile(`(?i)\b(wrong|lost|older|stale|torn|leak(s|ed)?|panic|race|hung|differs?|mismatch(es)?|corrupt\w*|damaged?|other bytes|isolat\w*|exit status|signal|SIGSEGV|fatal error)\b`)
	// late is what a test says that missed a deadline.
	late = regexp.MustCompile(`(?i)deadline exceeded|took too long|timed out|not (in|within) (time|\d+)|does not (end|stop|serve)|no answer|too late|never: `)
	// message is the first line of what a test says, and where.
	message = regexp.MustCompile(`(?m)^\s+(\S+\.go):\d+: (.*)$`)
)

// mayRetry reports whether a failure may have been the machine's: each of its messages,
// but for the daemons' logs, tells of a deadline.
func mayRetry(k testKey, said string) bool {
	dir := strings.TrimPrefix(k.pkg, module+"/e2e/")
	first, _, _ := strings.Cut(dir, "/")
	if !slices.Contains(mayTry, first) || grave.MatchString(said) {
		return false
	}
	missed := 0
	for _, m := range message.FindAllStringSubmatch(said, -1) {
		switch {
		case strings.HasPrefix(m[2], "log of "):
		case late.MatchString(m[2]):
			missed++
		default:
			return false
		}
	}
	return missed > 0
}

// again runs tests of e2e, and those once more that missed a deadline.
func again(ctx context.Context, args []string) error {
	if len(args) == 0 {
		args = []string{"./..."}
	}
	dir := filepath.Join(daemon.Root(), "e2e")
	// A cached result knows nothing of the program that it is about.
	r, err := goTest(ctx, os.Stdout, dir, os.Environ(), append([]string{"-count=1"}, args...)...)
	if err != nil {
		return err
	}
	red, seconds := judge(r)
	var flaky []testKey
	for _, k := range seconds {
		fmt.Printf("\n%s missed a deadline; once more by itself:\n", k)
		second, err := goTest(ctx, os.Stdout, dir, os.Environ(), append(flags(args), "-count=1", "-run=^"+k.name+"$", k.pkg)...)
		if err != nil {
			return err
		}
		if len(second.broken) > 0 {
			red = append(red, k.String())
		} else {
			flaky = append(flaky, k)
		}
	}
	for _, k := range flaky {
		fmt.Println("flaky:", k)
	}
	if len(flaky) > mostFlaky {
		red = append(red, fmt.Sprintf("%d flaky tests, more than %d", len(flaky), mostFlaky))
	}
	if len(red) > 0 {
		return errors.New("failed: " + strings.Join(red, ", "))
	}
	return nil
}

// judge parts what failed in what is red and what has a second try.
func judge(r *results) (red []string, seconds []testKey) {
	named := map[string]bool{}
	for k := range r.failed {
		named[k.pkg] = true
		if mayRetry(k, r.said[k]) {
			seconds = append(seconds, k)
		} else {
			red = append(red, k.String())
		}
	}
	for k := range r.begun { // its program has ended
		named[k.pkg] = true
		red = append(red, k.String()+" (not ended)")
	}
	for pkg := range r.broken { // it does not build
		if !named[pkg] {
			red = append(red, pkg)
		}
	}
	slices.Sort(red)
	slices.SortFunc(seconds, func(a, b testKey) int { return cmp.Compare(a.String(), b.String()) })
	return red, seconds
}

// flags are the arguments that name no package and no test.
func flags(args []string) []string {
	return slices.DeleteFunc(slices.Clone(args), func(a string) bool {
		return !strings.HasPrefix(a, "-") || strings.HasPrefix(a, "-run=") || strings.HasPrefix(a, "-count=")
	})
}
