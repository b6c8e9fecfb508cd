package main

import (
	"github.com/spf13/cobra"
)

func checkCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "check [FILE]",
		Short: "Check a configuration file and print what it means",
		Long: `Check a configuration file and print the effective configuration, with every
default and with the overrides of the environment; without a file, that of a
daemon that was given none. What is wrong is printed one problem a line, as
file:line:column: key.path: what is wrong.`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			path := ""
			if len(args) == 1 {
				path = args[0]
			}
			cfg, err := loadConfig(path)
			if err != nil {
				return err
			}
			return cfg.Print(cmd.OutOrStdout())
		},
	}
}
