"""The library of the server's modules, as a module: tools that import all files of a package find one here."""
