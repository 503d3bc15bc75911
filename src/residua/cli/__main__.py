"""`python -m residua.cli`: the command line where its script is not installed."""

from residua.cli.app import main

if __name__ == "__main__":
    main()
