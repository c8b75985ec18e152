// The entry point of programs with a table of applications. It runs the application that the first argument names.
package main

import (
	"fmt"
	"os"
)

func main() {
	seen, err := applications[os.Args[1]]()
	if err != nil {
		seen = "raised " + err.Error()
	}
	fmt.Println(seen)
}
