"""The library of the portable modules, as a module: tools that import all files of a package find one here."""
