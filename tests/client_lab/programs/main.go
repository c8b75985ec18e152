// The way in of the programs that have a table of applications: runs the one that the first argument names.
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
