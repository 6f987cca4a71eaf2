"""`python -m hub_exporter`"""

from hub_exporter.cli import main

if __name__ == "__main__":
    main()
