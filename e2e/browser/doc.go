// Package browser looks at the dashboard and at reports in Chromium: on wide and narrow
// screens, in light and dark, and with the keyboard.
//
//	go -C e2e test ./browser
//	go -C e2e test ./browser -run TestDashboard -screenshots /tmp/pictures
//
// It needs chromium, and npm with playwright-core in its cache.
package browser
