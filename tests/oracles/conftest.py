"""pytest puts the folder of a conftest.py on sys.path: close.py is there for the tests of every folder."""
