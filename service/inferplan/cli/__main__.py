"""`python -m inferplan.cli`."""

from inferplan.cli.main import main

if __name__ == "__main__":
    main()
