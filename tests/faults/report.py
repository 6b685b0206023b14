"""placeholder"""
class Report:
    pass
