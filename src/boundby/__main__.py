"""`python -m boundby`."""

from boundby.cli import main

if __name__ == "__main__":
    main()
