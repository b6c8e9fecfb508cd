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
	// oneTry are the packages of e2e whose tests are never run again.
	oneTry = []string{"history", "kills", "trouble", "disk", "database", "attack"}
	// grave is what a failure may not say that is to have a second try.
	grave = regexp.MustCompile(`(?i)\b(wrong|lost|older|torn|leak(s|ed)?|panic|race|hung|differs?|isolat\w*)\b`)
	// late is what a test says that missed a deadline.
	late = regexp.MustCompile(`(?i)deadline exceeded|took too long|timed out|not (in|within) (time|\d+)|does not (end|stop|serve)|did not (start|end|stop)|no answer|too late|never: `)
)

// mayRetry reports whether a failure may have been the machine's.
func mayRetry(k testKey, said string) bool {
	dir := strings.TrimPrefix(k.pkg, module+"/e2e/")
	first, _, _ := strings.Cut(dir, "/")
	return !slices.Contains(oneTry, first) && late.MatchString(said) && !grave.MatchString(said)
}

// again runs tests of e2e, and those once more that missed a deadline.
func again(ctx context.Context, args []string) error {
	if len(args) == 0 {
		args = []string{"./..."}
	}
	dir := filepath.Join(daemon.Root(), "e2e")
	r, err := goTest(ctx, os.Stdout, dir, os.Environ(), args...)
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
	for pkg := range r.broken { // it does not build, or ended in the middle of a test
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
